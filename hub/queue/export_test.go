package queue

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// nothingBelieved is that nothing is known of any volume but what its objects note.
type nothingBelieved struct{}

func (nothingBelieved) NeedsCapacity(_ Key, at Destination, _ bool) bool { return !at.Noted }
func (nothingBelieved) IsSingleNode(Key, string) bool                    { return false }
func (nothingBelieved) Touched(attach.Target)                            {}
func (nothingBelieved) Ended(Key) bool                                   { return false }

// NewQueue returns a Queue of volumes of which nothing is believed.
func NewQueue() *Queue {
	q := New(new(sync.Mutex), nothingBelieved{})
	q.SetLimits(Limits{Workers: 10, Pause: func(int) time.Duration { return time.Minute }})
	return q
}

// Remains says what a Queue still holds of items, "" for nothing.
func (q *Queue) Remains() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring(time.Now())
	waiting, running := 0, 0
	for i := range q.load {
		waiting += len(q.load[i].waiting)
		running += len(q.load[i].running)
	}
	if len(q.items)+len(q.volumes)+len(q.nodes)+waiting+running == 0 {
		return ""
	}
	return fmt.Sprintf("%d items, %d volumes, %d nodes, %d waiting and %d running in lanes", len(q.items), len(q.volumes), len(q.nodes), waiting, running)
}

// Published notes that the publish of a running item has succeeded.
func (q *Queue) Published(e *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.AnsweredLocked(e.Key, false)
}

// Refused notes that the publish of a running item was refused: the node is full.
func (q *Queue) Refused(e *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.AnsweredLocked(e.Key, true)
}

// DetachedFrom notes that a volume was detached from a Kubernetes node.
func (q *Queue) DetachedFrom(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.DetachedLocked("", node)
}

// Close ends the term.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.CloseLocked()
}

const RepeatPauseMax = repeatPauseMax

// Step is one step of Run, and reports whether another one has to follow at once.
func (q *Queue) Step(now time.Time) (e *Item, again bool) {
	e, wait := q.Start(now)
	return e, e != nil || wait <= 0
}

// TriedSince reports whether a try of an item that does not run has failed since another item became due.
func (q *Queue) TriedSince(key, other Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, since := q.items[key], q.items[other]
	return e.State != Running && e.tried > since.came
}

const MostBlocked = mostBlocked

// Take calls Start until it starts an item, which Take returns, or waits.
func (q *Queue) Take(now time.Time) *Item {
	for {
		if e, wait := q.Start(now); e != nil || wait > 0 {
			return e
		}
	}
}

// CallState is the state of a call.
type CallState int8

const (
	Due CallState = iota
	InFlight
	Pauses
	BacksOff
	Held
)

// Call is an item of a volume as a plain value.
type Call struct {
	Target                   attach.Target
	Shared, Detach, Dangling bool
	State                    CallState
	Came, Served, Tried      uint64
}

// Verdict is what Next returns for a call. After is the index of the detach that goes first, for WaitDetach.
type Verdict struct {
	Start bool
	Wait  WaitKind
	After int
}

// Next calls next with the items of calls.
func Next(calls []Call, parallel bool) []Verdict {
	var items []*Item
	for i, c := range calls {
		e := &Item{Key: AttachmentKey(strconv.Itoa(i)), dest: Destination{Target: c.Target, Shared: c.Shared}, came: c.Came, served: c.Served, tried: c.Tried}
		if c.Dangling {
			e.Key.Kind = DanglingKind
		}
		if c.Detach {
			e.Lane = DetachLane
		}
		e.State = [...]State{Due: Ready, InFlight: Running, Pauses: Delayed, BacksOff: Delayed, Held: Blocked}[c.State]
		e.pauses = c.State == Pauses
		items = append(items, e)
	}
	verdicts := make([]Verdict, len(calls))
	for i, w := range next(items, parallel, func(*Item) bool { return true }) {
		if s := calls[i].State; s == Due || s == Held {
			verdicts[i] = Verdict{Start: w.Kind == WaitWorker, Wait: w.Kind}
			verdicts[i].After, _ = strconv.Atoi(w.Detach.Name)
		}
	}
	return verdicts
}
