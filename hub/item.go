package hub

import (
	"container/heap"
	"container/list"
	"time"
)

// workKind is what kind of thing a piece of work is about.
type workKind int8

const (
	attachmentWork workKind = iota // a VolumeAttachment, by name
	orphanWork                     // a volume that was left attached, by target
	volumeWork                     // a PersistentVolume's finalizer, by name
)

// workKey names a piece of work. There is one item per key at any time.
type workKey struct {
	kind workKind
	name string
}

// lane is a share of a driver's workers.
type lane int8

const (
	attachLane lane = iota
	detachLane
	driftLane   // volumes that the storage system has lost: when nothing else waits
	releaseLane // finalizers of PersistentVolumes: no CSI call, so no worker of the driver
	laneCount
)

// String returns the lane's name as metrics call it.
func (l lane) String() string { return [...]string{"attach", "detach", "drift", "release"}[l] }

type itemState int8

const (
	waiting itemState = iota // in its lane, to be started
	delayed                  // in the heap, until due
	parked                   // until another item is done
	running                  // a worker has it
)

// item is one piece of work in a queue. Its fields are guarded by the queue's mutex.
type item struct {
	key   workKey
	lane  lane
	state itemState
	again bool       // running, and something has changed meanwhile
	hurry bool       // running, and something has changed that may help it
	soon  bool       // its delay is none of a backoff: others that have to wait for it do
	held  volumeCall // what it has its turn on a volume for
	place string     // the node that it has a place on

	// When it last had and began to wait for a turn on a volume, in steps of the queue.
	served, came uint64

	// What a parked one waits for, one of these:
	turn   volumeCall // its turn on a volume, for this
	crowd  string     // the node that has no place
	behind workKey    // the work that has to be done first

	repeats int // runs in a row at whose end the worker asked for another one at once

	since time.Time     // when its work was first asked for
	began time.Time     // when it began to run
	due   time.Time     // when a delayed one is to run
	index int           // in the heap of the delayed ones
	link  *list.Element // in the list of its lane: those waiting or those running
}

// repeat counts one more run at whose end the worker asks for another one at once, and
// returns how long that has to wait: not at all the first time.
func (it *item) repeat() time.Duration {
	it.repeats++
	if it.repeats == 1 {
		return 0
	}
	it.soon = true
	return min(repeatPauseMax, repeatPause<<min(it.repeats-2, 10))
}

// hasTurn reports whether the item has its turn on a volume.
func (it *item) hasTurn() bool { return it.held != volumeCall{} }

// delayHeap orders delayed items by when they are due.
type delayHeap []*item

func (h delayHeap) Len() int           { return len(h) }
func (h delayHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h delayHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *delayHeap) Push(x any) {
	it := x.(*item)
	it.index = len(*h)
	*h = append(*h, it)
}

func (h *delayHeap) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return it
}

func (h *delayHeap) take(it *item) { heap.Remove(h, it.index) }
