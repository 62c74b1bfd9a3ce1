package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// workshop runs a Queue in virtual time: each item takes as long as its call says.
type workshop struct {
	queue *queue.Queue
	// late: items are added without a volume handle, and their workers find it.
	late  bool
	start time.Time

	mu      sync.Mutex      // guards all that follows
	calls   map[string]call // by name
	ended   map[string]time.Duration
	began   map[string]time.Duration
	order   []string
	flying  [queue.LaneCount]int
	most    [queue.LaneCount]int
	mostAll int
}

type call struct {
	volume string        // "": one of its own
	node   string        // "": the call must be the only one for the volume
	on     string        // the Kubernetes node
	takes  time.Duration // the length of the call
	again  time.Duration // how long after a failure it is tried again
	tries  int           // of which all but the last fail; 0: the first succeeds
}

// place returns where a call is made.
func (c call) dest(name string) queue.Destination {
	p := queue.Destination{Target: attach.Target{VolumeHandle: c.volume, NodeID: c.node}, Node: c.on, Shared: c.node != ""}
	if c.volume == "" {
		p.Target.VolumeHandle = "volume of " + name
	}
	if c.node == "" {
		p.Target.NodeID = "node of " + name
	}
	return p
}

// openWorkshop runs a workshop inside a synctest bubble until the context ends.
func openWorkshop(ctx context.Context, workers int, late bool) *workshop {
	w := &workshop{queue: queue.NewQueue(), late: late, calls: map[string]call{}, start: time.Now(),
		ended: map[string]time.Duration{}, began: map[string]time.Duration{}}
	w.queue.Begin()
	w.queue.SetLimits(queue.Limits{Workers: workers, Pause: aMinute})
	w.queue.Open()
	go w.queue.Run(ctx, func(e *queue.Item) { go w.work(e) })
	return w
}

func (w *workshop) add(name string, l queue.Lane, c call) {
	w.mu.Lock()
	w.calls[name] = c
	w.mu.Unlock()
	p := c.dest(name)
	if w.late || l == queue.FinalizerLane {
		p = queue.Destination{Node: p.Node}
	}
	w.queue.Add(queue.AttachmentKey(name), l, p)
}

func (w *workshop) work(e *queue.Item) {
	name := e.Key.Name
	w.mu.Lock()
	c := w.calls[name]
	w.mu.Unlock()
	look, _ := w.queue.Look(e.Key)
	if look.Lane != queue.FinalizerLane && !w.queue.MayCall(e, c.dest(name)) {
		return
	}
	w.mu.Lock()
	w.began[name] = time.Since(w.start)
	w.flying[look.Lane]++
	w.most[look.Lane] = max(w.most[look.Lane], w.flying[look.Lane])
	w.mostAll = max(w.mostAll, w.flying[queue.AttachLane]+w.flying[queue.DetachLane])
	w.mu.Unlock()
	time.Sleep(c.takes)
	w.mu.Lock()
	w.flying[look.Lane]--
	w.ended[name] = time.Since(w.start)
	w.order = append(w.order, name)
	c.tries--
	w.calls[name] = c
	w.mu.Unlock()
	if c.tries > 0 {
		w.queue.End(e, queue.BackOff(look.Lane, c.again))
		return
	}
	w.queue.End(e, queue.Finished)
}

// finish lets virtual time pass until no item is left.
func (w *workshop) finish() {
	for {
		synctest.Wait()
		if left, _ := w.queue.All(); len(left) == 0 {
			return
		}
		time.Sleep(time.Second)
	}
}

func (w *workshop) last(prefix string, count int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var last time.Duration
	for i := range count {
		last = max(last, w.ended[fmt.Sprintf("%s%d", prefix, i)])
	}
	return last
}

// beganAt returns when a call began, and whether it did.
func (w *workshop) beganAt(name string) (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.began[name]
	return at, ok
}

// inBubble runs a test twice: with items whose volume is known when they are added, and with ones
// whose workers find it.
func inBubble(t *testing.T, workers int, f func(t *testing.T, w *workshop)) {
	for name, late := range map[string]bool{"placed": false, "unread": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := openWorkshop(ctx, workers, late)
				f(t, w)
				if left := w.queue.Remains(); left != "" {
					t.Errorf("left at the end: %s", left)
				}
			})
		})
	}
}
