package queue_test

import (
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// someHaveSlots reports whether there are items that have their slots and no workers yet: these begin,
// also if the limit is lowered then.
func (m *model) someHaveSlots() bool {
	for key := range m.dests {
		if v, ok := m.queue.Look(key); ok && v.State == queue.Ready && v.Wait.Kind != queue.WaitNode {
			return true
		}
	}
	return false
}

// check finds what an item must not begin beside.
func (m *model) check(key queue.Key, r *run) {
	if r.dest.Target.VolumeHandle == "" {
		return
	}
	for other, o := range m.running {
		if other != key && o.dest.Target.VolumeHandle == r.dest.Target.VolumeHandle &&
			(!m.parallel || !o.dest.Shared || !r.dest.Shared || o.dest.Target.NodeID == r.dest.Target.NodeID) {
			m.t.Fatalf("%v %+v goes on beside %v %+v", key, r.dest, other, o.dest)
		}
	}
	if r.lane == queue.DetachLane || r.dest.Shared {
		return
	}
	for other, at := range m.dests {
		if other != key && at.lane == queue.DetachLane && !m.backing[other] && at.dest.Target.VolumeHandle == r.dest.Target.VolumeHandle &&
			!(other.Kind == queue.DanglingKind && other.Target == r.dest.Target) && !m.queue.TriedSince(other, key) {
			m.t.Fatalf("the attach %v %+v goes before the detach %v %+v", key, r.dest, other, at.dest)
		}
	}
}

func (m *model) done(key queue.Key, r *run) {
	again := r.again
	m.queue.End(r.item, queue.Finished)
	if has := m.queue.Has(key); has {
		if !again {
			m.t.Fatalf("%v is done, and there is an item", key)
		}
		m.asked[key], m.dests[key] = true, lastDest{r.dest, r.lane}
		return
	}
	delete(m.dests, key)
}

// note says whether an item is delayed now, by what the Queue says: why it may not be is checked by
// other tests.
func (m *model) note(key queue.Key, delay time.Duration, as map[queue.Key]bool) {
	v, ok := m.queue.Look(key)
	if !ok {
		m.t.Fatalf("%v is lost", key)
	}
	if v.State == queue.Delayed {
		as[key] = true
	}
	m.asked[key] = true
}

// updateDelays drops delays that have ended.
func (m *model) updateDelays() {
	for _, delayed := range []map[queue.Key]bool{m.pending, m.backing} {
		for key := range delayed {
			if v, ok := m.queue.Look(key); !ok || v.State != queue.Delayed {
				delete(delayed, key)
			}
		}
	}
}

// compare finds where the Queue and the books differ.
func (m *model) compare() {
	for key := range m.dests {
		v, ok := m.queue.Look(key)
		if !ok {
			m.t.Fatalf("%v is lost", key)
		}
		if (v.State == queue.Running) != (m.running[key] != nil) {
			m.t.Fatalf("%v is in state %v, running: %v", key, v.State, m.running[key] != nil)
		}
	}
}

// drain lets all end, and sees to it that every item comes to run.
func (m *model) drain() {
	m.queue.Open()
	m.open = true
	m.workers, m.parallel = 100, true
	if !m.someHaveSlots() {
		m.perNode = 1 + m.random.IntN(2)
	}
	m.queue.SetLimits(queue.Limits{Workers: m.workers, PerNode: m.perNode, Parallel: m.parallel, Pause: func(int) time.Duration { return modelPause }})
	time.Sleep(time.Minute) // the driver has all its workers, and all are due
	for len(m.dests) > 0 {
		for m.takeOne() {
		}
		key, ok := pick(m, m.running, byKey)
		if !ok {
			m.t.Fatalf("nothing runs, and %d items are left: %+v", len(m.dests), m.dests)
		}
		r := m.running[key]
		delete(m.running, key)
		m.done(key, r)
	}
	if len(m.asked) > 0 {
		m.t.Errorf("%v were asked for and have not run", m.asked)
	}
}
