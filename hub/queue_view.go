package hub

import "time"

// laneView is what one lane has to do and does at one moment.
type laneView struct {
	queued, delayed, running int
	oldest                   time.Duration // since the oldest that does not run was asked for
	workers                  int           // that it may have now, those that the other lends it included
}

// view returns what is in the queue, by lane.
func (q *queue) view(now time.Time) [laneCount]laneView {
	q.mu.Lock()
	defer q.mu.Unlock()
	var lanes [laneCount]laneView
	for _, it := range q.items {
		l := &lanes[it.lane]
		switch it.state {
		case running:
			l.running++
			continue
		case delayed:
			l.delayed++
		default:
			l.queued++
		}
		l.oldest = max(l.oldest, now.Sub(it.since))
	}
	lanes[attachLane].workers = max(0, q.lanes.most(attachLane, now))
	lanes[detachLane].workers = max(0, q.lanes.most(detachLane, now))
	lanes[driftLane].workers = max(1, q.lanes.workers/2)
	lanes[releaseLane].workers = releaseWorkers
	return lanes
}

// itemView is one piece of work at one moment.
type itemView struct {
	lane  lane
	state itemState
	since time.Time // when it was asked for
	due   time.Time // of a delayed one
	// volumeBusy, nodeBusy and behind say what a parked one waits for.
	volumeBusy, nodeBusy bool
	behind               workKey // the detach that goes first
}

// look returns the work on a key, if there is any.
func (q *queue) look(key workKey) (itemView, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil {
		return itemView{}, false
	}
	v := itemView{lane: it.lane, state: it.state, since: it.since}
	switch it.state {
	case delayed:
		v.due = it.due
	case parked:
		v.behind = it.behind
		v.nodeBusy = it.crowd != ""
		v.volumeBusy = it.turn != volumeCall{}
	}
	return v, true
}
