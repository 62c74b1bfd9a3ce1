package reconcile

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// exploredWorld is a state of the world: the API server, a driver, replicas of the hub and what is on the way between them.
// Nobody changes it.
type exploredWorld struct {
	api      *exploredAPI
	driver   exploredBooks
	replicas []place
	lease    leaseState
	users    userState
}

// place is where a replica runs.
type place struct {
	replica *replica // nil: no process runs
	events  [resources][]watchEvent
	lists   [resources]bool // the watch has ended: the next event is a list
	flights []flight        // one for each request that waits, in the same order
	leased  bool            // it has led: the next term takes over only if another replica has led since
}

// flight is a request on its way.
type flight struct {
	request
	answered bool
	answer   answer
}

// leaseState is the Lease of the driver.
type leaseState struct {
	holder  int // -1: nobody
	last    int // the last holder, -1: none
	expired bool
}

// userState is what users have done.
type userState struct {
	faults int8
	uids   int8
	left   [userSteps]int8 // how often each step may still be taken
	taint  bool            // a finalizer was stripped, or a node ID has changed
	used   attach.Target   // where a kubelet uses a volume; zero: nowhere
}

// maxLag is how many events a watch lags behind at most. Then it ends, and the replica lists.
const maxLag = 3

func (w *exploredWorld) clone() *exploredWorld {
	next := *w
	next.replicas = slices.Clone(w.replicas)
	return &next
}

// changed returns the world after a change of the API server: each watch has one more event to deliver.
func (w *exploredWorld) changed(api *exploredAPI, e *watchEvent) *exploredWorld {
	next := w.clone()
	next.api = api
	if e == nil {
		return next
	}
	for i := range next.replicas {
		p := &next.replicas[i]
		switch {
		case p.replica == nil || p.lists[e.resource]:
		case len(p.events[e.resource]) == maxLag:
			p.events[e.resource], p.lists[e.resource] = nil, true
		default:
			p.events[e.resource] = append(slices.Clone(p.events[e.resource]), *e)
		}
	}
	return next
}

// handle is exploredAPI.handle, and reads Nodes.
func (w *exploredWorld) handle(q request) (*exploredAPI, answer, *watchEvent) {
	if q.verb != verbNode {
		return w.api.handle(q)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: q.name}}
	if used := w.users.used; used.NodeID == w.api.nodeID(q.name) {
		node.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName("kubernetes.io/csi/" + exploredDriver + "^" + used.VolumeHandle)}
	}
	return w.api, answer{node: node}, nil
}

// put is changed for a write of a user.
func (w *exploredWorld) put(r resource, o apiObject) *exploredWorld {
	api, e := w.api.put(r, o)
	return w.changed(api, &e)
}

// remove is changed for a deletion by a user.
func (w *exploredWorld) remove(r resource, o apiObject) *exploredWorld {
	api, e := w.api.remove(r, o)
	return w.changed(api, &e)
}

// settle takes the next value of a replica: its requests that are new begin their way.
func (w *exploredWorld) settle(i int, r *replica) (*exploredWorld, error) {
	next := w.clone()
	p := &next.replicas[i]
	before := p.flights
	p.replica, p.flights = r, nil
	for _, q := range r.waiting {
		at := slices.IndexFunc(before, func(f flight) bool { return f.request == q })
		if at >= 0 {
			p.flights = append(p.flights, before[at])
			continue
		}
		if err := w.checkRequest(i, q); err != nil {
			return next, err
		}
		p.flights = append(p.flights, flight{request: q})
	}
	return next, r.fault
}

// nameOfReplica returns "" for nobody.
func nameOfReplica(i int) string {
	if i < 0 {
		return ""
	}
	return string(rune('A' + i))
}

// appendKey appends the key of a state.
func (w *exploredWorld) key(to []byte) []byte {
	k := &exploredKey{}
	for r := range resources {
		for _, o := range w.api.objects[r] {
			k.object(o)
		}
		k.version(r, itoa(w.api.version[r]))
	}
	w.driver.appendKey(k)
	for _, p := range w.replicas {
		k.add("replica")
		if p.replica == nil {
			continue
		}
		k.join(p.replica.key)
		for r := range resources {
			if p.lists[r] {
				k.add("lists")
			}
			for _, e := range p.events[r] {
				k.add(fmt.Sprint(e.gone))
				k.object(e.object)
			}
			k.add(";")
		}
		for _, f := range p.flights {
			if f.answered {
				k.add(f.String())
				f.answer.appendKey(k)
			}
		}
		k.add(fmt.Sprint(p.leased))
	}
	k.add(fmt.Sprint(w.lease, w.users.faults, w.users.left, w.users.taint, w.users.used))
	return k.ranked(to)
}

// ranked appends the key, with the ranks of versions in place of their values.
func (k *exploredKey) ranked(to []byte) []byte {
	to = append(to, k.text...)
	for _, versions := range k.versions {
		order := slices.Clone(versions)
		slices.Sort(order)
		order = slices.Compact(order)
		for _, v := range versions {
			at, _ := slices.BinarySearch(order, v)
			to = append(to, byte(at))
		}
		to = append(to, ';')
	}
	return to
}

// describe says what a state looks like, for a trace.
func (w *exploredWorld) describe() string {
	var b strings.Builder
	for r := range resources {
		for _, o := range w.api.objects[r] {
			fmt.Fprintln(&b, describe(o))
		}
	}
	fmt.Fprintf(&b, "driver: %v\n", w.driver)
	fmt.Fprintf(&b, "lease: %+v\n", w.lease)
	for i, p := range w.replicas {
		if p.replica == nil {
			fmt.Fprintf(&b, "%s does not run\n", nameOfReplica(i))
			continue
		}
		fmt.Fprintf(&b, "%s: leads %t, delayed %v, dangling %d, events %v, lists %v\n", nameOfReplica(i), p.replica.leads, p.replica.delayed, len(p.replica.dangling), p.events, p.lists)
		for _, f := range p.flights {
			fmt.Fprintf(&b, "  in flight: %v (answered %t)\n", f.request, f.answered)
		}
	}
	return b.String()
}

// exploredBooks are the driver's books: where volumes are, and what it still works on after the deadline of the call.
type exploredBooks struct {
	published []attach.Target
	late      []lateCall
}

// lateCall is a call that the driver works on, and for whose answer nobody waits any more.
type lateCall struct {
	verb   verb
	target attach.Target
	shared bool
}

func (d exploredBooks) appendKey(k *exploredKey) {
	for _, t := range d.published {
		k.add(t.VolumeHandle, t.NodeID)
	}
	k.add("late")
	for _, c := range d.late {
		k.add(string(c.verb), c.target.VolumeHandle, c.target.NodeID)
	}
	k.add(";")
}

func (d exploredBooks) String() string {
	return fmt.Sprintf("published %v, late calls %v", d.published, d.late)
}

// busy reports whether the driver still works on a call for a volume. It answers Aborted then (CSI spec, ABORTED).
func (d exploredBooks) busy(handle string) bool {
	return slices.ContainsFunc(d.late, func(c lateCall) bool { return c.target.VolumeHandle == handle })
}

// refuses reports whether the driver refuses a publish, because the single-node volume is published elsewhere (CSI spec,
// FAILED_PRECONDITION).
func (d exploredBooks) refuses(q lateCall) bool {
	return q.verb == verbPublish && !q.shared && slices.ContainsFunc(d.published, func(t attach.Target) bool {
		return t.VolumeHandle == q.target.VolumeHandle && t.NodeID != q.target.NodeID
	})
}

// after returns the driver after a call has taken effect.
func (d exploredBooks) after(c lateCall) exploredBooks {
	d.published = slices.DeleteFunc(slices.Clone(d.published), func(t attach.Target) bool { return t == c.target })
	if c.verb == verbPublish && !d.refuses(c) {
		d.published = append(d.published, c.target)
		slices.SortFunc(d.published, func(a, b attach.Target) int { return strings.Compare(a.VolumeHandle+a.NodeID, b.VolumeHandle+b.NodeID) })
	}
	return d
}
