package reconcile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore/snapshot"
)

func itoa(n int) string { return strconv.Itoa(n) }

type inputKind int8

const (
	inputLead inputKind = iota
	inputEvent
	inputRelist
	inputAnswer
	inputRetry
	inputExpire
	inputLose
)

// input is one thing that happens to a replica.
type input struct {
	kind      inputKind
	name      string // of the request or the entry
	event     watchEvent
	answer    answer
	resource  resource // relisted
	objects   []apiObject
	version   int // of the list, or of the lease
	continues bool
}

func (in input) key() string {
	k := &exploredKey{}
	k.add(itoa(int(in.kind)), in.name, itoa(int(in.resource)), itoa(in.version), strconv.FormatBool(in.continues))
	switch in.kind {
	case inputEvent:
		k.add(strconv.FormatBool(in.event.gone))
		k.object(in.event.object)
	case inputAnswer:
		in.answer.appendKey(k)
	case inputRelist:
		for _, o := range in.objects {
			k.object(o)
		}
	}
	return k.raw()
}

// raw is a key in which the values of versions count.
func (k *exploredKey) raw() string {
	text := slices.Clone(k.text)
	for _, versions := range k.versions {
		for _, v := range versions {
			text = binary.AppendVarint(text, int64(v))
		}
		text = append(text, ';')
	}
	return string(text)
}

// replica is a replica of the hub in a state of the world. It is a value: how it came about, and what the world has to know
// of it. A step makes it live again from the start, gives it one more input, and takes the next value of it.
type replica struct {
	before   *replica
	in       input
	key      *exploredKey
	waiting  []request
	delayed  []string // entries
	busy     bool     // it has entries
	leads    bool
	expired  bool
	dangling []volume.Dangling
	fault    error
}

// replicas remembers what becomes of replicas: nearly all steps of the world make a replica do what another one did before.
type replicas struct {
	t     *testing.T
	mu    sync.Mutex
	known map[[2]uint64]*replica // by key
	after map[afterKey]*replica
	lives int
}

type afterKey struct {
	of *replica
	in string
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// first returns a replica that has just started and filled its caches.
func (rs *replicas) first(a *exploredAPI) *replica {
	var r *replica
	for resource := range resources {
		r = rs.next(r, input{kind: inputRelist, resource: resource, objects: a.objects[resource], version: a.version[resource]})
	}
	return r
}

// next returns a replica after an input.
func (rs *replicas) next(r *replica, in input) *replica {
	k := afterKey{r, in.key()}
	rs.mu.Lock()
	next := rs.after[k]
	rs.mu.Unlock()
	if next != nil {
		return next
	}
	synctest.Test(rs.t, func(*testing.T) { next = live(r, in) })
	raw := next.key.raw()
	id := [2]uint64{maphash.String(seeds[0], raw), maphash.String(seeds[1], raw)}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.lives++
	if same := rs.known[id]; same != nil {
		next = same
	} else {
		rs.known[id] = next
	}
	rs.after[k] = next
	return next
}

// live makes a replica live, gives it an input, and returns what has become of it.
func live(r *replica, in input) *replica {
	h := newExploredHost()
	var inputs []input
	for at := r; at != nil; at = at.before {
		inputs = append(inputs, at.in)
	}
	slices.Reverse(inputs)
	for _, earlier := range append(inputs, in) {
		if earlier.kind == inputAnswer && h.inFlight.waiting[earlier.name] == nil {
			var names []string
			for _, i := range append(inputs, in) {
				names = append(names, fmt.Sprint(i.kind, i.name, i.answer, i.event))
			}
			panic(fmt.Sprintf("the replica is not deterministic: %q does not wait, but %v, after %q", earlier.name, h.inFlight.requests(), names))
		}
		h.take(earlier)
	}
	next := &replica{before: r, in: in, key: &exploredKey{}, waiting: h.inFlight.requests(), leads: h.leader != nil, expired: h.expired, fault: h.fault}
	next.dangling = h.memory.Table.AllDangling()
	for key, e := range h.entries() {
		next.busy = true
		if e.State == queue.Delayed {
			next.delayed = append(next.delayed, nameOfRun(key))
		}
	}
	slices.Sort(next.delayed)
	h.appendKey(next.key)
	h.inFlight.end()
	time.Sleep(time.Hour) // those that sleep before they ask again end too
	synctest.Wait()
	return next
}

// take has an input happen, and lets the replica work until it waits for the world.
func (h *exploredHost) take(in input) {
	switch in.kind {
	case inputLead:
		h.lead(in)
	case inputEvent:
		h.change(in.event)
	case inputRelist:
		h.relist(in.resource, in.objects, in.version)
	case inputAnswer:
		h.deliver(in)
	case inputRetry:
		h.retry(in.name)
	case inputExpire:
		time.Sleep(exploredLease)
		h.expired = true
	case inputLose:
		h.loseLease()
	}
	synctest.Wait()
	h.startDue()
	if h.expired { // a worker whose read has failed may sleep before it reads again
		time.Sleep(readFor)
		synctest.Wait()
	}
	if len(h.runs) > len(h.inFlight.requests()) {
		h.fail(errors.New("a worker neither waits for an answer nor has ended"))
	}
}

// deliver gives a worker an answer. What the worker knows from then on depends on nothing but the answer, and what it sees in
// the memory of the replica now.
func (h *exploredHost) deliver(in input) {
	a := h.inFlight.take(in.name)
	h.see(in.answer.object)
	if history := h.runs[a.run]; history != nil {
		history.add(in.name)
		in.answer.appendKey(history)
		h.observe(history)
	}
	a.answered <- in.answer
}

// observe appends what a worker may see in the memory of the replica.
func (h *exploredHost) observe(k *exploredKey) {
	seen := &exploredKey{}
	h.appendCaches(seen)
	seen.text = seenPlan.Append(seen.text, h.memory.Table)
	k.text = binary.LittleEndian.AppendUint64(k.text, maphash.Bytes(seeds[0], seen.text))
	k.text = binary.LittleEndian.AppendUint64(k.text, maphash.Bytes(seeds[1], seen.text))
	for r := range seen.versions {
		k.versions[r] = append(k.versions[r], seen.versions[r]...)
	}
}

// appendKey appends all that decides what the replica does from now on.
func (h *exploredHost) appendKey(k *exploredKey) {
	h.appendCaches(k)
	for _, name := range slices.Sorted(maps.Keys(h.seen)) {
		k.add(string(h.seen[name]))
	}
	k.text = tablePlan.Append(k.text, h.memory.Table)
	k.add(strconv.FormatBool(h.expired))
	if h.leader != nil {
		k.add("leads")
		k.version(attachments, itoa(h.term))
		if v := h.leader.collection.Load(); v != nil {
			k.add("collection")
			k.version(attachments, *v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.runs)) {
		k.add(name)
		k.join(h.runs[name])
	}
	for _, q := range h.inFlight.requests() {
		k.add(q.String(), q.body, string(q.seen))
	}
	if h.fault != nil {
		k.add(h.fault.Error())
	}
}

func (h *exploredHost) appendCaches(k *exploredKey) {
	vas := h.cluster.AllAttachments()
	slices.SortFunc(vas, func(a, b *storagev1.VolumeAttachment) int { return cmp.Compare(a.Name, b.Name) })
	for _, va := range vas {
		k.object(va)
		if newest := h.overlay().Attachment(va.Name); newest == nil || newest.ResourceVersion != va.ResourceVersion {
			k.add("newest")
			k.object(newest)
		}
	}
	for _, name := range slices.Sorted(slices.Values(h.informers[volumes].indexer.ListKeys())) {
		pv := h.cluster.Volume(name)
		k.object(pv)
		if newest := h.overlay().Volume(name); newest.ResourceVersion != pv.ResourceVersion {
			k.add("newest")
			k.object(newest)
		}
	}
	for _, name := range exploredVolumeNames {
		if pv := h.cluster.DeletedVolume(name); pv != nil {
			k.add("deleted")
			k.object(pv)
		}
	}
	for _, name := range exploredNodeNames {
		k.object(h.cluster.CSINode(name))
	}
	k.object(h.cluster.CSIDriver(exploredDriver))
	for r := range resources {
		if v := h.informers[r].indexer.version; v != "" {
			k.version(r, v)
		}
	}
}

var (
	exploredVolumeNames = []string{"pv1", "pv2"}
	exploredNodeNames   = []string{"n1", "n2"}
)

// tablePlan makes keys of Tables and their Queues. It leaves out what makes no difference to decisions, or none while the clock
// stands still: texts of errors, when things were, the pace of calls, and the order of delays, any of which may end next.
var tablePlan = snapshot.Must[volume.Table](append(tableRules,
	snapshot.Skip("queue.term.alarms", "queue.laneLoad.running", "queue.laneLoad.waiting"),
	snapshot.Skip("queue.node.detached", "queue.Item.detached"),
	snapshot.Rank("queue.term.steps", "queue.Item.came", "queue.Item.served", "queue.Item.tried", "queue.Item.refusedAt"),
	snapshot.Skip("queue.Progress.Required", "queue.Progress.Due", "queue.Item.began", "queue.term.looked", "queue.laneLoad.pace"),
	snapshot.Skip("queue.Progress.Error", "queue.Progress.Cause", "queue.Retries.Since", "queue.Retries.Session", "queue.Retries.AfterReconnect"),
	snapshot.Saturate(2, "queue.Progress.Tries", "queue.Item.repeats"),
)...)

// seenPlan makes keys of what a worker may see in a Table: Attachments and publications.
var seenPlan = snapshot.Must[volume.Table](append(tableRules, snapshot.Skip("volume.Table.Queue"))...)

var tableRules = []snapshot.Rule{
	snapshot.Skip("sync.Mutex", "queue.term.wake"),
	snapshot.Share("*v1.SecretReference", "queue.Limits.Pause", "queue.Retries.Session", "queue.Retries.LastSession", "queue.Queue.beliefs"),
	snapshot.Zero("time.Time"),
	snapshot.Skip("volume.Dangling.Error"),
	snapshot.Saturate(2, "volume.Dangling.Failures", "volume.Dangling.refusals"),
	snapshot.Saturate(4, "volume.Attachment.refusals"),
}
