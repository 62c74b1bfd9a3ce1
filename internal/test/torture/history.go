package torture

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

// moment is the time since the history began, on the monotonic clock of this process. Drivers, proxies and pods all
// run in this process, so all moments compare.
type moment = time.Duration

const forEver moment = math.MaxInt64

// place is a volume at a node ID of one driver; without a node ID, a PersistentVolume.
type place = safety.Place

const (
	publish   = fakecsi.ControllerPublishVolume
	unpublish = fakecsi.ControllerUnpublishVolume
)

// call is a publish or an unpublish, as the driver saw it.
type call struct {
	At     moment
	Until  moment // when it ended, at most its deadline; forEver: it goes on
	ID     uint64
	Method fakecsi.Method
	By     string // the process, such as hub0/4711
	place
	Code string // empty: it goes on
}

// write is a request that changes an object, as the API server answered it.
type write struct {
	At      moment // when it left its process
	Until   moment // when it was answered
	By      string // the hub, such as hub0; empty: a pod or a fault
	Verb    string
	Object  string // resource, name and subresource
	place          // of a VolumeAttachment or a PersistentVolume
	Code    int    // 0: the outcome is not known
	Version uint64 // resourceVersion of the answer; 0: the object was not written

	// State of a VolumeAttachment or PersistentVolume after the write.
	UID                         string
	Attached, Deleting, Guarded bool // Guarded: it has the finalizer of its driver
	Gone                        bool // the write has removed the last finalizer of a deleted object

	Lease *leaseWrite
}

// known reports whether the write has surely taken effect.
func (w write) known() bool { return w.Version != 0 }

// follows reports whether a write of the same object is after another one. The answer to the write that ends an
// object has the resourceVersion of its last state.
func (w write) follows(o write) bool {
	return w.Version > o.Version || w.Version == o.Version && w.Gone && !o.Gone
}

// attachment returns what a VolumeAttachment says after a write. Each is named after its place.
func (w write) attachment() safety.Attachment {
	return safety.Attachment{Name: w.Object, UID: w.UID, Volume: w.Volume, Noted: w.place, Attached: w.Attached, Deleting: w.Deleting, Guarded: w.Guarded}
}

// leaseWrite is what a write makes of a Lease.
type leaseWrite struct {
	Holder   string // a process, such as hub0/4711; empty: released
	BasedOn  uint64
	Duration time.Duration
}

// change is a change of what a storage has attached.
type change struct {
	At moment
	place
	Attached bool
	Call     uint64 // 0: by a fault
}

// record is a history until a moment.
type record struct {
	began    time.Time
	to       moment
	takeover moment   // when one process was killed, and another one takes over; 0: never
	calls    []call   // in the order of their ends; the running ones last
	writes   []write  // in the order of their ends
	changes  []change // in their order
}

// line is one event of a history, for people.
type line struct {
	at    time.Time
	about string // a volume, a driver or a hub; empty: everything
	text  string
}

func (l line) String() string {
	return fmt.Sprintf("%s %s: %.240s", l.at.Format("15:04:05.000"), cmp.Or(l.about, "all"), l.text)
}

// history records every call, every write of a VolumeAttachment, PersistentVolume or Lease, and every change in a
// storage, in memory. A nil history records nothing.
type history struct {
	began time.Time

	mu         sync.Mutex        // guards all below
	names      map[int]string    // of processes, by process ID
	identities map[string]string // processes by the identity that they write into leases
	holders    map[string]string // of the leases, by driver
	running    map[string]*call
	now        record
	lines      []line
}

func newHistory() *history {
	return &history{began: time.Now(), names: map[int]string{}, identities: map[string]string{}, holders: map[string]string{}, running: map[string]*call{}}
}

// save writes all lines to a file.
func (h *history) save(path string) error {
	if h == nil {
		return nil
	}
	if err := os.WriteFile(path, []byte(strings.Join(h.last(len(h.lines), time.Now()), "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

func (h *history) moment(t time.Time) moment { return t.Sub(h.began) }

// add adds a line about a volume, a driver, a hub, or everything.
func (h *history) add(about, format string, args ...any) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.print(about, format, args...)
}

// print is add with mu held.
func (h *history) print(about, format string, args ...any) {
	h.lines = append(h.lines, line{time.Now(), about, fmt.Sprintf(format, args...)})
}

// last returns the last n lines until a time that are about any of the names or everything; without names, of all.
func (h *history) last(n int, until time.Time, about ...string) (told []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines {
		if (len(about) == 0 || l.about == "" || slices.Contains(about, l.about)) && !l.at.After(until) {
			told = append(told, l.String())
		}
	}
	return told[max(0, len(told)-n):]
}

// saw takes what a driver tells.
func (h *history) saw(e fakecsi.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, key := h.moment(e.Time), fmt.Sprintf("%s %d", e.Driver, e.Call)
	where := place{Driver: e.Driver, Volume: e.Volume, Node: e.Node}
	switch e.Kind {
	case fakecsi.CallBegan:
		c := &call{At: at, Until: forEver, ID: e.Call, Method: e.Method, By: cmp.Or(h.names[e.Peer], fmt.Sprintf("process/%d", e.Peer)), place: where}
		if !e.Deadline.IsZero() {
			c.Until = h.moment(e.Deadline)
		}
		h.running[key] = c
		h.print(e.Volume, "call %d %s on %s by %s begins", c.ID, c.Method, c.Node, c.By)
	case fakecsi.CallEnded:
		c := h.running[key]
		delete(h.running, key)
		c.Until, c.Code = min(c.Until, max(at, c.At)), e.Code.String()
		h.now.calls = append(h.now.calls, *c)
		h.print(e.Volume, "call %d %s on %s by %s: %s", c.ID, c.Method, c.Node, c.By, c.Code)
	case fakecsi.Violated: // the audit finds it in the books
	default:
		h.now.changes = append(h.now.changes, change{At: at, place: where, Attached: e.Kind == fakecsi.Attached, Call: e.Call})
		h.print(e.Volume, "storage: %s on %s by call %d", e.Kind, e.Node, e.Call)
	}
}

// wrote takes a write that was answered.
func (h *history) wrote(w write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.writes = append(h.now.writes, w)
	took := (w.Until - w.At).Round(time.Millisecond)
	switch {
	case w.Lease == nil:
		h.print(cmp.Or(w.Volume, w.Driver), "%s of %s by %q, outcome %d after %v: version %d attached %v deleting %v guarded %v",
			w.Verb, w.Object, w.By, w.Code, took, w.Version, w.Attached, w.Deleting, w.Guarded)
	case !w.known() || h.holders[w.Driver] != w.Lease.Holder:
		h.print(w.Driver, "lease: %q holds it, outcome %d after %v", w.Lease.Holder, w.Code, took)
	}
	if w.Lease != nil && w.known() {
		h.holders[w.Driver] = w.Lease.Holder
	}
}

// named notes a process of a hub, and returns its name.
func (h *history) named(hub string, pid int) string {
	name := fmt.Sprintf("%s/%d", hub, pid)
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.names[pid] = name
	}
	return name
}

// holder returns the process that writes an identity into leases. The first process that does so is the one that
// has that identity.
func (h *history) holder(identity, process string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.identities[identity]; !ok {
		h.identities[identity] = process
	}
	return h.identities[identity]
}

// record returns what happened so far. The calls in flight are in it.
func (h *history) record() record {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.now
	r.began, r.to, r.calls = h.began, h.moment(time.Now()), slices.Clone(r.calls)
	for _, c := range h.running {
		r.calls = append(r.calls, *c)
	}
	return r
}

// takenOver notes that the process that has acted so far acts no more.
func (h *history) takenOver() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.takeover = h.moment(time.Now())
}

// hubOf returns the hub of a process.
func hubOf(process string) string {
	hub, _, _ := strings.Cut(process, "/")
	return hub
}
