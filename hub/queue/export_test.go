package queue

import (
	"fmt"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// nothingBelieved is that nothing is known of any volume but what its objects note.
type nothingBelieved struct{}

func (nothingBelieved) NeedsPlace(_ Key, at Place, _ bool) bool { return !at.Noted }
func (nothingBelieved) IsSingleNode(Key, string) bool           { return false }
func (nothingBelieved) Touched(attach.Target)                   {}
func (nothingBelieved) Ended(Key) bool                          { return false }

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
	q.offerNodes(time.Now())
	waiting, running := 0, 0
	for i := range q.lanes.load {
		waiting += q.lanes.load[i].waiting.Len()
		running += q.lanes.load[i].running.Len()
	}
	if len(q.items)+len(q.volumes)+len(q.nodes)+len(q.alarms)+waiting+running == 0 {
		return ""
	}
	return fmt.Sprintf("%d items, %d volumes, %d nodes, %d alarms, %d waiting and %d running in lanes",
		len(q.items), len(q.volumes), len(q.nodes), len(q.alarms), waiting, running)
}

// Published notes that the publish of a running item has succeeded.
func (q *Queue) Published(e *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.PublishedLocked(e.Key)
}

// Refused notes that the publish of a running item was refused: the node is full.
func (q *Queue) Refused(e *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.RefusedLocked(e.Key)
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
	e, wait := q.take(now)
	return e, e != nil || wait <= 0
}

// TriedSince reports whether a try of an item that does not run has failed since another item became due.
func (q *Queue) TriedSince(key, other Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, since := q.items[key], q.items[other]
	return e.State != Running && e.tried > since.came
}

const MostParked = mostParked
