package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

func open(workers, perNode int, parallel bool) *queue.Queue {
	q := queue.NewQueue()
	q.Begin()
	q.SetLimits(queue.Limits{Workers: workers, PerNode: perNode, Parallel: parallel, Pause: aMinute})
	q.Open()
	return q
}

func aMinute(int) time.Duration { return time.Minute }

// only is the destination of a call that must be the only one for its volume.
func only(handle, nodeID string) queue.Destination {
	return queue.Destination{Target: attach.Target{VolumeHandle: handle, NodeID: nodeID}}
}

// shared is the destination of a call for a multi-node volume.
func shared(handle, nodeID string) queue.Destination {
	p := only(handle, nodeID)
	p.Shared = true
	return p
}

// taken adds an item and has it run.
func taken(t *testing.T, q *queue.Queue, name string, l queue.Lane, p queue.Destination) *queue.Item {
	t.Helper()
	q.Add(queue.AttachmentKey(name), l, p)
	return take(t, q, queue.AttachmentKey(name))
}

// take has the next item run, which has to be that of a key.
func take(t *testing.T, q *queue.Queue, key queue.Key) *queue.Item {
	t.Helper()
	e := q.Take(time.Now())
	if e == nil {
		t.Fatalf("nothing was started, want %v", key)
	}
	if e.Key != key {
		t.Fatalf("%v was started, want %v", e.Key, key)
	}
	return e
}

// started returns the names of all items that start now, which then run.
func started(q *queue.Queue) []string {
	var names []string
	for e := q.Take(time.Now()); e != nil; e = q.Take(time.Now()) {
		names = append(names, e.Key.Name)
	}
	return names
}

func look(t *testing.T, q *queue.Queue, name string) queue.Progress {
	t.Helper()
	v, ok := q.Look(queue.AttachmentKey(name))
	if !ok {
		t.Fatalf("there is no item %s", name)
	}
	return v
}

func TestNothingIsAskedForBetweenTerms(t *testing.T) {
	q := open(10, 0, true)
	q.Add(queue.AttachmentKey("a"), queue.AttachLane, only("v", "n"))
	q.Close()
	q.Add(queue.AttachmentKey("b"), queue.AttachLane, only("v", "n"))
	q.AddAndRetry(queue.AttachmentKey("b"), queue.AttachLane, only("v", "n"))
	q.RetryNow(queue.AttachmentKey("b"))
	if q.Has(queue.AttachmentKey("a")) || q.Has(queue.AttachmentKey("b")) {
		t.Error("there is an item without a term")
	}
	q.Begin()
	q.SetLimits(queue.Limits{Workers: 10, Pause: aMinute})
	if left := q.Remains(); left != "" {
		t.Errorf("a new term begins with %s", left)
	}
	q.Add(queue.AttachmentKey("b"), queue.AttachLane, only("v", "n"))
	if got := started(q); len(got) > 0 {
		t.Errorf("%v started before the driver could be called", got)
	}
	q.Open()
	take(t, q, queue.AttachmentKey("b"))
}

// A volume whose calls end the driver's process must not be tried at each new connection, nor in each new term.
func TestNewConnectionDoesNotEndTheDelayOfASuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, dest := queue.AttachmentKey("a"), only("v", "n")
		q := queue.NewQueue()
		begin := func() {
			q.Begin()
			q.SetLimits(queue.Limits{Workers: 10, Pause: aMinute})
			q.Open()
		}
		begin()
		q.Add(key, queue.AttachLane, dest)
		fail := func(e *queue.Item) {
			e.Retries.Disconnects = queue.DisconnectsAllowed + 1
			e.Retries.AfterReconnect = 20 * time.Second
			q.End(e, queue.BackOff(queue.AttachLane, time.Minute))
		}
		startsAfter := func(what string, want time.Duration) *queue.Item {
			t.Helper()
			began := time.Now()
			e := q.Take(time.Now())
			for ; e == nil && time.Since(began) < time.Hour; e = q.Take(time.Now()) {
				time.Sleep(time.Second)
			}
			if took := time.Since(began); e == nil || took != want {
				t.Fatalf("%s: it starts after %v, want %v", what, took, want)
			}
			return e
		}
		e := startsAfter("at first", 0)
		q.AddAndRetry(key, queue.AttachLane, dest) // during its run
		fail(e)
		q.AddAndRetry(key, queue.AttachLane, dest)
		fail(startsAfter("after a failure", time.Minute))
		time.Sleep(50 * time.Second)
		q.AddAndRetry(key, queue.AttachLane, dest)
		fail(startsAfter("connected again 10s before it is due", 20*time.Second))
		time.Sleep(2 * time.Minute)
		q.AddAndRetry(key, queue.AttachLane, dest)
		fail(startsAfter("connected again when it is due", 20*time.Second))
		q.Close()
		begin()
		q.AddAndRetry(key, queue.AttachLane, dest)
		fail(startsAfter("in the next term", time.Minute))
		q.RetryNow(key)
		fail(startsAfter("after a change of an object", 0))
		q.AddAndRetry(key, queue.DetachLane, dest)
		e = startsAfter("as a detach", 0)
		e.Retries = queue.Retries{}
		q.End(e, queue.BackOff(queue.DetachLane, time.Minute))
		q.AddAndRetry(key, queue.DetachLane, dest)
		q.End(startsAfter("no suspect any more", 0), queue.Finished)
	})
}
