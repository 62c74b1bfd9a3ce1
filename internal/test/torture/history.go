package torture

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/safety"
)

// moment is the time since the run began, on the monotonic clock of this process. Drivers, proxies and pods all
// run in this process, so that all moments compare.
type moment = time.Duration

// place is a volume at a node ID of one driver; without a node ID, a PersistentVolume.
type place = safety.Place

// call is a publish or an unpublish, as the driver saw it.
type call struct {
	At     moment         `json:"at"`
	Until  moment         `json:"until"` // when it ended, at most its deadline; math.MaxInt64: it goes on
	ID     uint64         `json:"id"`
	Method fakecsi.Method `json:"method"`
	By     string         `json:"by"` // the process, such as hub0/4711
	place
	Shared bool   `json:"shared,omitempty"` // MULTI_NODE
	Code   string `json:"code,omitempty"`
}

// write is a request that changes an object, as the API server answered it.
type write struct {
	At      moment `json:"at"`    // when it left its process
	Until   moment `json:"until"` // when it was answered
	By      string `json:"by"`    // the hub, such as hub0; empty: a pod or a fault
	Verb    string `json:"verb"`
	Object  string `json:"object"` // resource and name
	place          // of a VolumeAttachment or a PersistentVolume
	Code    int    `json:"code"`              // 0: the outcome is not known
	Version uint64 `json:"version,omitempty"` // resourceVersion of the answer; 0: the object was not written
	Body    string `json:"body,omitempty"`    // beginning of the request

	// State of a VolumeAttachment or PersistentVolume after the write.
	UID      string `json:"uid,omitempty"`
	Attached bool   `json:"attached,omitempty"`
	Deleting bool   `json:"deleting,omitempty"`
	Guarded  bool   `json:"guarded,omitempty"` // it has the finalizer of its driver
	Gone     bool   `json:"gone,omitempty"`    // the write has removed the last finalizer of a deleted object

	Lease *leaseWrite `json:"lease,omitempty"`
}

// known reports whether the write has surely taken effect.
func (w write) known() bool { return w.Version != 0 }

// follows reports whether a write of the same object is after another one. The answer to the write that ends an
// object has the resourceVersion of its last state.
func (w write) follows(o write) bool {
	return w.Version > o.Version || w.Version == o.Version && w.Gone && !o.Gone
}

// leaseWrite is what a write makes of a Lease.
type leaseWrite struct {
	Holder   string        `json:"holder"` // a process, such as hub0/4711; empty: released
	BasedOn  uint64        `json:"basedOn,omitempty"`
	Duration time.Duration `json:"duration"`
}

// change is a change of what a storage has attached.
type change struct {
	At moment `json:"at"`
	place
	Attached bool   `json:"attached"`
	Foreign  bool   `json:"foreign,omitempty"` // attached without a call
	Call     uint64 `json:"call,omitempty"`    // 0: by a fault
}

// watchStart is the begin of a watch of VolumeAttachments by a hub.
type watchStart struct {
	At moment `json:"at"`
	By string `json:"by"`
}

// record is a part of a history.
type record struct {
	from, to moment
	calls    []call   // in the order of their ends; the running ones last
	writes   []write  // in the order of their ends
	changes  []change // in their order
	starts   []watchStart
	lacks    []lack
}

// lack is a time in which a driver does not announce PUBLISH_UNPUBLISH_VOLUME.
type lack struct {
	At     moment `json:"at"`
	Until  moment `json:"until"` // forEver: it goes on
	Driver string `json:"driver"`
}

// history records every call, every write of a VolumeAttachment, PersistentVolume or Lease, and every change in a
// storage. It keeps them in memory until take, and writes them to a file as JSON, one a line. A nil history
// records nothing.
type history struct {
	began   time.Time
	process func(pid int) string // name of a process

	mu         sync.Mutex // guards all below
	file       *os.File
	out        *bufio.Writer
	identities map[string]string // processes by the identity that they write into leases
	holders    map[string]string // of the leases, by driver
	running    map[string]*call
	lacks      []lack // all of the run
	now        record
	lines      []line // what has happened, for people
}

// openHistory makes the file. The caller must close the history.
func openHistory(path string, process func(int) string) (*history, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make history: %w", err)
	}
	return &history{began: time.Now(), process: process, file: file, out: bufio.NewWriter(file), identities: map[string]string{}, holders: map[string]string{}, running: map[string]*call{}}, nil
}

func (h *history) close() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.out.Flush(); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return h.file.Close()
}

func (h *history) moment(t time.Time) moment { return t.Sub(h.began) }

// time returns the wall clock time of a moment.
func (h *history) time(m moment) time.Time { return h.began.Add(m) }

// saw takes what a driver tells.
func (h *history) saw(e fakecsi.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, key := h.moment(e.Time), fmt.Sprintf("%s %d", e.Driver, e.Call)
	where := place{Driver: e.Driver, Volume: e.Volume, Node: e.Node}
	switch e.Kind {
	case fakecsi.CallBegan:
		c := &call{At: at, Until: forEver, ID: e.Call, Method: e.Method, By: h.process(e.Peer), place: where, Shared: e.Shared}
		if !e.Deadline.IsZero() {
			c.Until = h.moment(e.Deadline)
		}
		h.running[key] = c
	case fakecsi.CallEnded:
		c := h.running[key]
		delete(h.running, key)
		c.Until, c.Code = min(c.Until, max(at, c.At)), e.Code.String()
		h.now.calls = append(h.now.calls, *c)
		h.print("call", c)
	case fakecsi.Violated: // the audit finds it in the books
	default:
		c := change{At: at, place: where, Attached: e.Kind == fakecsi.Attached, Foreign: e.Foreign, Call: e.Call}
		h.now.changes = append(h.now.changes, c)
		h.print("storage", c)
	}
}

// wrote takes a write that was answered.
func (h *history) wrote(w write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.writes = append(h.now.writes, w)
	if w.Lease != nil && w.known() {
		h.holders[w.Driver] = w.Lease.Holder
	}
	h.print("write", w)
}

// watched takes the begin of a watch of VolumeAttachments.
func (h *history) watched(by string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := watchStart{h.moment(time.Now()), by}
	h.now.starts = append(h.now.starts, s)
	h.print("watch", s)
}

// announces takes whether a driver announces PUBLISH_UNPUBLISH_VOLUME from now on.
func (h *history) announces(driver string, can bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.moment(time.Now())
	for i, l := range h.lacks {
		if l.Driver == driver && l.Until == forEver {
			h.lacks[i].Until = now
			h.print("lack", h.lacks[i])
		}
	}
	if !can {
		h.lacks = append(h.lacks, lack{now, forEver, driver})
	}
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

// leads returns how many drivers a hub leads now.
func (h *history) leads(hub string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, process := range h.holders {
		if hubOf(process) == hub {
			n++
		}
	}
	return n
}

// busy returns how many publishes of a hub are in flight, and how many attached volumes it has reported since the
// last take.
func (h *history) busy(hub string) (publishing, reported int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.running {
		if c.Method == publish && hubOf(c.By) == hub {
			publishing++
		}
	}
	for _, w := range h.now.writes {
		if w.By == hub && w.Attached && !w.Deleting {
			reported++
		}
	}
	return publishing, reported
}

// take returns the history since the last take. The calls in flight are in it, and will be in the next one too.
func (h *history) take() record {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.now
	r.to, r.lacks = h.moment(time.Now()), slices.Clone(h.lacks)
	h.now = record{from: r.to}
	for _, c := range h.running {
		r.calls = append(r.calls, *c)
	}
	return r
}

// print writes a line. Called with mu held. close returns the error.
func (h *history) print(kind string, event any) {
	_ = json.NewEncoder(h.out).Encode(struct {
		Kind  string `json:"kind"`
		Event any    `json:"event"`
	}{kind, event})
}
