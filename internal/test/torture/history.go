package torture

import (
	"bufio"
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
	Foreign  bool   // attached without a call
	Call     uint64 // 0: by a fault
}

// watchStart is the begin of a watch of VolumeAttachments by a hub.
type watchStart struct {
	At moment
	By string
}

// lack is a time in which a driver does not announce PUBLISH_UNPUBLISH_VOLUME.
type lack struct {
	At, Until moment // forEver: it goes on
	Driver    string
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
// storage. It keeps them in memory until take, and writes them to a file, one a line. A nil history records nothing.
type history struct {
	began time.Time

	mu         sync.Mutex // guards all below
	file       *os.File
	out        *bufio.Writer
	names      map[int]string    // of processes, by process ID
	identities map[string]string // processes by the identity that they write into leases
	holders    map[string]string // of the leases, by driver
	running    map[string]*call
	lacks      []lack // all of the run
	now        record
	lines      []line
}

// openHistory makes the file. The caller must close the history.
func openHistory(path string) (*history, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make history: %w", err)
	}
	return &history{began: time.Now(), file: file, out: bufio.NewWriter(file), names: map[int]string{}, identities: map[string]string{},
		holders: map[string]string{}, running: map[string]*call{}}, nil
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

// add adds a line about a volume, a driver, a hub, or everything.
func (h *history) add(about, format string, args ...any) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.print(about, format, args...)
}

// print is add with mu held. close returns the error of the file.
func (h *history) print(about, format string, args ...any) {
	l := line{time.Now(), about, fmt.Sprintf(format, args...)}
	h.lines = append(h.lines, l)
	fmt.Fprintln(h.out, l)
}

// last returns the last n lines until a time that are about any of the names or everything.
func (h *history) last(n int, until time.Time, about ...string) (told []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines {
		if (l.about == "" || slices.Contains(about, l.about)) && !l.at.After(until) {
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
		h.now.changes = append(h.now.changes, change{At: at, place: where, Attached: e.Kind == fakecsi.Attached, Foreign: e.Foreign, Call: e.Call})
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

// watched takes the begin of a watch of VolumeAttachments by a hub.
func (h *history) watched(by string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.starts = append(h.now.starts, watchStart{h.moment(time.Now()), by})
	h.print(by, "begins to watch VolumeAttachments")
}

// announces takes whether a driver announces PUBLISH_UNPUBLISH_VOLUME from now on.
func (h *history) announces(driver string, can bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.moment(time.Now())
	for i, l := range h.lacks {
		if l.Driver == driver && l.Until == forEver {
			h.lacks[i].Until = now
		}
	}
	if !can {
		h.lacks = append(h.lacks, lack{now, forEver, driver})
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

// leads returns how many drivers a hub leads now.
func (h *history) leads(hub string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
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

// hubOf returns the hub of a process.
func hubOf(process string) string {
	hub, _, _ := strings.Cut(process, "/")
	return hub
}

// peek returns the calls and writes since the last take.
func (h *history) peek() record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return record{calls: slices.Clone(h.now.calls), writes: slices.Clone(h.now.writes)}
}
