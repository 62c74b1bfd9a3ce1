package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// phaseFor bounds the time of attaching, and of detaching: csi-attacher with its default flags attaches about 17 volumes per second.
const phaseFor = 10 * time.Minute

// moment is a step on the way of a volume to its node, or away from it.
type moment int

const (
	asked    moment = iota // this program sends a request next, for a VolumeAttachment or for a Pod
	created                // the VolumeAttachment exists
	called                 // the driver gets ControllerPublishVolume
	attached               // status.attached of the VolumeAttachment is true
	reported               // node.status.volumesAttached has the volume: a kubelet would mount it now
	gone                   // the VolumeAttachment is gone
	moments                // how many there are
)

// way has the times at which a volume reached each moment.
type way [moments]time.Time

// clock notes when each volume reaches each moment, and tells when all have reached a goal. It times one kind of change at a
// time. Its methods may be called from any goroutine.
type clock struct {
	mu   sync.Mutex
	goal moment          // guarded by mu, as all below
	ways map[string]*way // by PersistentVolume, of those that were asked for
	want int             // how many are to reach the goal
	have int             // how many have
	last time.Time       // when the last one did
	all  chan struct{}   // closed when all have
}

func (c *clock) reset(goal moment, want int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goal, c.ways, c.want, c.have, c.all = goal, map[string]*way{}, want, 0, make(chan struct{})
}

// begin notes that a volume is asked for.
func (c *clock) begin(v volume) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ways[v.name] = &way{asked: time.Now()}
}

// note notes that a volume has reached a moment, if it is the first time.
func (c *clock) note(name string, m moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.ways[name]
	if w == nil || !w[m].IsZero() {
		return
	}
	w[m] = time.Now()
	if m != c.goal {
		return
	}
	c.last = w[m]
	if c.have++; c.have == c.want {
		close(c.all)
	}
}

// observe handles every change of a VolumeAttachment; now is nil when it is gone.
func (c *clock) observe(was, now *storagev1.VolumeAttachment) {
	if now == nil {
		c.note(*was.Spec.Source.PersistentVolumeName, gone)
		return
	}
	name := *now.Spec.Source.PersistentVolumeName
	c.note(name, created)
	if now.Status.Attached {
		c.note(name, attached)
	}
}

// observeNode handles every change of a Node.
func (c *clock) observeNode(_, now *corev1.Node) {
	if now == nil {
		return
	}
	for _, v := range now.Status.VolumesAttached {
		_, handle, _ := strings.Cut(string(v.Name), "^")
		c.note(handle, reported)
	}
}

// progress returns how many have reached the goal, of how many.
func (c *clock) progress() (have, want int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.have, c.want
}

// wait blocks until all have reached the goal.
func (c *clock) wait(ctx context.Context) (timing, error) {
	c.mu.Lock()
	all := c.all
	c.mu.Unlock()
	var ended error
	select {
	case <-all:
	case <-ctx.Done():
		ended = context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended != nil {
		return timing{}, fmt.Errorf("wait for %d volumes: %d are ready: %w", c.want, c.have, ended)
	}
	t := timing{last: c.last}
	first := c.last
	for name, w := range c.ways {
		if w[asked].Before(first) {
			first = w[asked]
		}
		t.took = append(t.took, w[c.goal].Sub(w[asked]))
		t.ways = append(t.ways, namedWay{name, *w})
	}
	slices.Sort(t.took)
	t.elapsed = c.last.Sub(first)
	return t, nil
}

// timing is the result of a clock.
type timing struct {
	elapsed time.Duration   // from the first request until the last goal is reached
	took    []time.Duration // sorted
	last    time.Time       // when the last goal was reached
	ways    []namedWay
}

type namedWay struct {
	name string
	way  way
}

func (t timing) perSecond() float64 { return float64(len(t.took)) / t.elapsed.Seconds() }

// percentile returns a percentile of the times, in seconds.
func (t timing) percentile(p float64) float64 { return statistics.Percentile(t.took, p).Seconds() }

// change changes something of each volume, many at once, and blocks until each has reached its goal.
func (s *stage) change(ctx context.Context, goal moment, volumes []volume, change func(context.Context, volume) error) (timing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseFor, fmt.Errorf("not after %v", phaseFor))
	defer cancel()
	s.clock.reset(goal, len(volumes))
	err := each(ctx, volumes, func(ctx context.Context, v volume) error {
		s.clock.begin(v)
		return change(ctx, v)
	})
	if err != nil {
		return timing{}, err
	}
	return s.clock.wait(ctx)
}

func (s *stage) attach(ctx context.Context, volumes []volume) (timing, error) {
	return s.change(ctx, attached, volumes, s.ask)
}

func (s *stage) detach(ctx context.Context, volumes []volume) (timing, error) {
	return s.change(ctx, gone, volumes, s.release)
}
