package lease

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

// askedFor is how long a Lease without a claim is watched after Holder was last called for it.
const askedFor = 10 * time.Minute

// watch says who needs the watch of a Lease, or of all Leases of a namespace. Leases.mu guards it.
type watch struct {
	claims int                // calls of Hold in progress
	asked  time.Time          // when Holder was last called for it
	end    context.CancelFunc // nil: it has not begun, or it has ended
}

// needed returns how long the watch is needed if nothing changes, 0 if it is not.
func (w *watch) needed(now time.Time) time.Duration {
	if w.claims > 0 {
		return askedFor
	}
	return max(0, askedFor-now.Sub(w.asked))
}

// wantWatch changes who needs the watch of a Lease. The namespace of the replicas is watched as a whole. In another
// namespace each Lease has a watch of its own: the rights there are by name, and the Leases of others are of no use.
func (l *Leases) wantWatch(n Name, change func(*watch)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watches[Name{Namespace: n.Namespace}] != nil {
		return
	}
	w := l.watches[n]
	if w == nil {
		w = &watch{}
		l.watches[n] = w
	}
	change(w)
	if begun := w.end != nil; begun != (w.needed(time.Now()) > 0) {
		notify(l.watchesChanged)
	}
}

// updateWatches begins the watches that are needed, in goroutines of the group, and ends the others. It returns when to
// call it again if nothing changes before.
func (l *Leases) updateWatches(ctx context.Context, group *sync.WaitGroup) (again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again = askedFor
	for n, w := range l.watches {
		needed := w.needed(time.Now())
		switch {
		case needed > 0 && w.end == nil:
			watching, end := context.WithCancel(ctx)
			w.end = end
			group.Go(func() { l.runWatch(watching, n); l.watchEnded(n) })
		case needed == 0 && w.end != nil:
			w.end()
		case needed == 0:
			delete(l.watches, n)
		}
		if needed > 0 {
			again = min(again, needed)
		}
	}
	return again
}

// watchEnded forgets what a watch has seen: nobody knows what has changed since.
func (l *Leases) watchEnded(n Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observations.forget(n)
	l.watches[n].end = nil
	notify(l.watchesChanged)
}

// runWatch blocks until ctx ends. After a panic it begins anew.
func (l *Leases) runWatch(ctx context.Context, n Name) {
	w := &watcher{kube: l.options.Kube, watched: n, observations: l.observations, timeout: l.options.RenewDeadline, retry: l.options.RetryPeriod}
	for ctx.Err() == nil {
		if err := panics.Catch(func() { w.run(ctx) }); err != nil {
			w.down(ctx, klog.FromContext(ctx), err)
			pause(ctx, l.options.RetryPeriod)
		}
	}
}
