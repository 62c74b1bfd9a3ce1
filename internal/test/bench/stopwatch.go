package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// stopwatch times VolumeAttachments, by name, from the request for a change until a watcher sees the
// goal reached. It times one kind of change at a time. Its methods may be called from any
// goroutine.
type stopwatch struct {
	mu      sync.Mutex
	reaches goal                     // guarded by mu, as all below
	began   map[string]time.Time     // requests
	took    map[string]time.Duration // of those that have reached the goal
	first   time.Time                // of all requests
	last    time.Time                // when the last one reached the goal
	want    int                      // how many are to reach the goal
	all     chan struct{}            // closed when they have
}

// goal reports whether a VolumeAttachment is as it should be; now is nil when it is gone.
type goal func(now *storagev1.VolumeAttachment) bool

func isAttached(now *storagev1.VolumeAttachment) bool { return now != nil && now.Status.Attached }
func isGone(now *storagev1.VolumeAttachment) bool     { return now == nil }

// reset begins to time want VolumeAttachments on their way to a goal.
func (w *stopwatch) reset(reaches goal, want int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reaches, w.want = reaches, want
	w.began, w.took = make(map[string]time.Time, want), make(map[string]time.Duration, want)
	w.first, w.last = time.Time{}, time.Time{}
	w.all = make(chan struct{})
}

// begin notes the time: the caller sends the request for a VolumeAttachment next.
func (w *stopwatch) begin(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.began[name] = now
	if w.first.IsZero() {
		w.first = now
	}
}

// observe handles every change that the watcher sees.
func (w *stopwatch) observe(was, now *storagev1.VolumeAttachment) {
	object := now
	if now == nil {
		object = was
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	began, awaited := w.began[object.Name]
	if _, there := w.took[object.Name]; there || !awaited || !w.reaches(now) {
		return
	}
	w.last = time.Now()
	w.took[object.Name] = w.last.Sub(began)
	if len(w.took) == w.want {
		close(w.all)
	}
}

// progress returns how many have reached the goal, of how many.
func (w *stopwatch) progress() (there, want int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.took), w.want
}

// lastReached returns when the last one reached the goal.
func (w *stopwatch) lastReached() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// wait blocks until all have reached the goal, and returns how long each took.
func (w *stopwatch) wait(ctx context.Context, what string) (timing, error) {
	w.mu.Lock()
	all := w.all
	w.mu.Unlock()
	select {
	case <-all:
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		return timing{}, fmt.Errorf("wait for %d VolumeAttachments to be %s: %d are: %w", w.want, what, len(w.took), context.Cause(ctx))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := timing{elapsed: w.last.Sub(w.first)}
	for _, took := range w.took {
		t.took = append(t.took, took)
	}
	slices.Sort(t.took)
	return t, nil
}

// timing is the result of a stopwatch.
type timing struct {
	elapsed time.Duration   // from the first request until the last goal is reached
	took    []time.Duration // sorted
}

func (t timing) perSecond() float64 { return float64(len(t.took)) / t.elapsed.Seconds() }

// percentile returns a percentile of the times, in seconds.
func (t timing) percentile(p float64) float64 { return statistics.Percentile(t.took, p).Seconds() }
