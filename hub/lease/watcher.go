package lease

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

// forbiddenRetry is the pause after a watch that the API server has refused: a right that is
// granted later is used then.
const forbiddenRetry = time.Minute

// watcher lists and watches the Leases of one scope.
type watcher struct {
	kube         Kube
	watched      Name // Name is "" for all Leases of the namespace
	observations *observations
	timeout      time.Duration // of one list
	retry        time.Duration // between two tries
	reportedDown atomic.Bool
}

func (w *watcher) up(logger klog.Logger) {
	w.observations.watchUp(w.watched)
	if w.reportedDown.Swap(false) {
		logger.Info("Watching leases again", "namespace", w.watched.Namespace, "lease", w.watched.Name)
	}
}

func (w *watcher) down(ctx context.Context, logger klog.Logger, err error) {
	if ctx.Err() != nil {
		return
	}
	w.observations.watchDown(w.watched, err)
	if !w.reportedDown.Swap(true) {
		logger.Info("Cannot watch leases, polling them", "namespace", w.watched.Namespace, "lease", w.watched.Name, "err", err)
	}
}

// run blocks until ctx ends.
func (w *watcher) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	quietLogger := quiet(logger)
	ctx = klog.NewContext(ctx, quietLogger)
	client := w.kube.CoordinationV1().Leases(w.watched.Namespace)
	selector := ""
	if w.watched.Name != "" { // RBAC takes the name from this selector
		selector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.watched.Name).String()
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			limited, cancel := context.WithTimeout(ctx, w.timeout)
			defer cancel()
			return client.List(limited, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = selector
			changes, err := client.Watch(ctx, o)
			if err != nil {
				w.down(ctx, logger, err)
			} else {
				w.up(logger)
			}
			return changes, err
		},
	}
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(source, w.kube), &coordinationv1.Lease{},
		leaseStore{w}, cache.ReflectorOptions{
			Logger: &quietLogger,
			Name:   "leases " + w.watched.String(),
			// The default grows to 30 s: the return of an API server must be noticed at once.
			Backoff: &wait.Backoff{Duration: w.retry / 4, Factor: 2, Jitter: 0.2, Steps: 3, Cap: w.retry},
		})
	for ctx.Err() == nil {
		retry := w.retry
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			w.down(ctx, logger, err)
			if apierrors.IsForbidden(err) {
				retry = max(retry, forbiddenRetry)
			}
		}
		pause(ctx, retry/2+rand.N(retry/2))
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// quietLevel is the verbosity from which on the messages of a reflector are logged.
const quietLevel = 4

// quiet returns a logger for a reflector, which logs each failed attempt as an error. The
// watcher logs itself when an outage begins and when it ends.
func quiet(logger klog.Logger) klog.Logger {
	if logger.V(quietLevel).Enabled() {
		return logger
	}
	return klog.Logger{}
}

// leaseStore is where the reflector, which checks their type, stores Leases.
type leaseStore struct{ *watcher }

func (s leaseStore) Add(obj any) error { return s.Update(obj) }

func (s leaseStore) Update(obj any) error {
	s.observations.saw(obj.(*coordinationv1.Lease))
	return nil
}

func (s leaseStore) Delete(obj any) error {
	l := obj.(*coordinationv1.Lease)
	s.observations.sawDeleted(Name{l.Namespace, l.Name}, l.ResourceVersion)
	return nil
}

func (s leaseStore) Replace(objs []any, version string) error {
	leases := make([]*coordinationv1.Lease, len(objs))
	for i, obj := range objs {
		leases[i] = obj.(*coordinationv1.Lease)
	}
	s.observations.list(s.watched, leases, version)
	return nil
}

func (leaseStore) Resync() error { return nil }

// askedFor is how long a Lease without a candidacy is watched after Holder was last called for it.
const askedFor = 10 * time.Minute

// watch says who needs the watch of a Lease, or of all Leases of a namespace. Leases.mu guards it.
type watch struct {
	candidacies int                // calls of Hold in progress
	asked       time.Time          // when Holder was last called for it
	end         context.CancelFunc // nil: it has not begun, or it has ended
}

// needed returns how long the watch is needed if nothing changes, 0 if it is not.
func (w *watch) needed(now time.Time) time.Duration {
	if w.candidacies > 0 {
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
