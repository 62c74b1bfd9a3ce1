package registry

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// restartDelay is when a Source that ended by itself runs again.
const restartDelay = 10 * time.Second

// runner runs one Source and holds the latest set that it sent.
type runner struct {
	name   string
	latest atomic.Pointer[[]Driver] // nil until the first
	memory objectMemory
	cancel context.CancelFunc
	ended  chan struct{} // closed when the Source has ended
}

// startRunner runs a Source until stop or the end of ctx.
func startRunner(ctx context.Context, source Source, changed chan<- struct{}) *runner {
	ctx, cancel := context.WithCancel(ctx)
	r := &runner{name: source.Name(), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		keepRunning(ctx, r.name, func(ctx context.Context) error {
			return source.Run(ctx, func(set []Driver) {
				r.latest.Store(&set)
				notify(changed)
			})
		})
	}()
	return r
}

// stop ends the Source and waits for that. A nil runner does nothing.
func (r *runner) stop() {
	if r != nil {
		r.cancel()
		<-r.ended
	}
}

// found returns what the Source sees, and what it saw that was deleted. It remembers that, so it is called after each change.
func (r *runner) found() (drivers []Driver, reported bool) {
	if r == nil {
		return nil, true
	}
	latest := r.latest.Load()
	if latest == nil {
		return nil, false
	}
	return r.memory.withDeleted(*latest), true
}

// keepRunning runs something again if it ends by itself, until ctx ends.
func keepRunning(ctx context.Context, name string, run func(context.Context) error) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := run(ctx); ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Source of drivers failed, restarting it", "source", name, "retryIn", restartDelay)
		}
	}, restartDelay)
}
