package volume

import (
	"container/heap"
	"container/list"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Kind is the kind of an entry.
type Kind int8

const (
	ClaimKind     Kind = iota // a VolumeAttachment, by name
	UnownedKind               // an unowned publication, by target
	FinalizerKind             // the driver's finalizer on a PersistentVolume, by name
)

// Key names an entry. There is at most one entry of a key.
type Key struct {
	Kind   Kind
	Name   string        // of a VolumeAttachment or PersistentVolume
	Target attach.Target // of an unowned publication
}

// ClaimKey is the key of a VolumeAttachment.
func ClaimKey(name string) Key { return Key{Kind: ClaimKind, Name: name} }

// FinalizerKey is the key of a PersistentVolume whose finalizer may have to be removed.
func FinalizerKey(name string) Key { return Key{Kind: FinalizerKind, Name: name} }

func unownedKey(t attach.Target) Key { return Key{Kind: UnownedKind, Target: t} }

// Place is where an entry calls the driver, and for which volume. Without a volume handle the entry is
// unplaced: a worker has to read the objects first.
type Place struct {
	Target attach.Target
	Node   string // name of the Kubernetes node
	// Shared: calls for the volume on other nodes may be in flight at the same time, because its
	// access mode is known to be MULTI_NODE. Otherwise the call needs the volume for itself.
	Shared bool
	// Noted: the object says that the volume may be published at the target, and that the node was not full.
	Noted bool
}

// Lane is a share of a driver's workers.
type Lane int8

const (
	AttachLane Lane = iota
	DetachLane
	DriftLane     // volumes that the storage system has lost: when nothing else waits
	FinalizerLane // finalizers of PersistentVolumes: without a call, so not limited by the setting workers
	LaneCount
)

// LaneOf returns the lane of an operation.
func LaneOf(op attach.Operation) Lane {
	if op == attach.Detaching {
		return DetachLane
	}
	return AttachLane
}

// String returns the name of the lane in metrics.
func (l Lane) String() string { return [...]string{"attach", "detach", "drift", "release"}[l] }

// State is the state of an entry.
type State int8

const (
	Blocked State = iota // Next does not let it start; Wait is the reason
	Ready                // it is in its lane, or waits for a slot of its node or a place there
	Delayed              // it waits until it is due
	Running              // a worker has it
)

// WaitKind is the reason why an entry is Blocked or Ready.
type WaitKind int8

const (
	WaitWorker   WaitKind = iota
	WaitVolume            // other calls for the volume
	WaitNode              // other calls for the node
	WaitDetach            // a detach of the volume that goes first
	WaitCapacity          // a place on the node, which is full
	WaitNothing           // only in views: a worker is free
)

// Wait is the reason why an entry has not started.
type Wait struct {
	Kind   WaitKind
	Detach Key    // that goes first, for WaitDetach
	Node   string // from which it detaches, for WaitDetach; "" if it is not known
	// Position is its place in the line of the node, from 1, for WaitCapacity. Only Look sets it.
	Position int
}

// Entry is one piece of work in a driver's queue. The Table's mutex guards it, except Retries,
// which belong to the worker that has it.
type Entry struct {
	Key     Key
	Retries Retries

	lane   Lane
	state  State
	place  Place
	volume *Volume // nil: unplaced
	wait   Wait

	again    bool // it was asked for during its run
	retryNow bool // RetryNow was called during its run
	renewed  bool // Renew was called during its run
	pauses   bool // its delay is not a backoff: attaches elsewhere wait for it
	waited   bool // it was Blocked since it became due
	called   bool // its worker has called Reserve in this run
	slot     bool // it has a slot of its node
	refused  bool // the driver has refused the publish of this run: the node is full

	permit    permit // to start although its node is full
	detached  uint64 // of the node, when it got its slot
	refusedAt uint64 // the step of the Table at which the driver refused it with a permit

	// The steps of the Table at which it last became due, last could call the driver, and last failed.
	came, served, tried uint64

	repeats int // runs in a row at whose end the worker asked for another run at once

	failures int             // in a row, for Look
	failure  string          // the last of them
	cause    diagnosis.Cause // of failure

	since time.Time     // when its work was first asked for
	began time.Time     // when it began to run
	due   time.Time     // when it runs, if it is Delayed
	index int           // in the heap of the delayed entries, or -1
	link  *list.Element // in a list of its lane, or nil
}

// Since returns when the work was first asked for.
func (e *Entry) Since() time.Time { return e.since }

// Lane returns the lane of an entry, for the worker that has it.
func (e *Entry) Lane() Lane { return e.lane }

// repeat counts a run at whose end the worker asks for another run at once. It returns the delay of that run,
// which is 0 the first time.
func (e *Entry) repeat() time.Duration {
	e.repeats++
	if e.repeats == 1 {
		return 0
	}
	e.pauses = true
	return min(repeatPauseMax, repeatPause<<min(e.repeats-2, 10))
}

// call returns the entry as Next needs it. held says that its node is full.
func (e *Entry) call(held bool) Call {
	c := Call{Target: e.place.Target, Shared: e.place.Shared, Detach: e.lane == DetachLane, Unowned: e.Key.Kind == UnownedKind, Came: e.came, Served: e.served, Tried: e.tried}
	switch {
	case e.state == Running:
		c.State = InFlight
	case e.state == Delayed && !e.pauses:
		c.State = BacksOff
	case e.state == Delayed:
		c.State = Pauses
	case held:
		c.State = Held
	}
	return c
}

// delayHeap orders delayed entries by when they are due.
type delayHeap []*Entry

func (h delayHeap) Len() int           { return len(h) }
func (h delayHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h delayHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *delayHeap) Push(x any) {
	e := x.(*Entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *delayHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

func (h *delayHeap) take(e *Entry) { heap.Remove(h, e.index) }
