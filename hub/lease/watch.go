package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// watch has the observer see the leases of one namespace.
type watch struct {
	kube      Kube
	namespace string
	observer  *observer
	timeout   time.Duration // of one list
	retry     time.Duration // how often it is tried again
	blind     atomic.Bool   // it was said that leases cannot be watched
}

func (w *watch) up(logger klog.Logger) {
	w.observer.up(w.namespace)
	if w.blind.Swap(false) {
		logger.Info("Leases are watched again", "namespace", w.namespace)
	}
}

func (w *watch) down(ctx context.Context, logger klog.Logger, err error) {
	if ctx.Err() != nil {
		return
	}
	w.observer.down(w.namespace, err)
	if !w.blind.Swap(true) {
		logger.Info("Leases cannot be watched, and are polled", "namespace", w.namespace, "err", err)
	}
}

// run blocks until ctx ends.
func (w *watch) run(ctx context.Context) {
	loud := klog.FromContext(ctx)
	logger := quiet(loud)
	ctx = klog.NewContext(ctx, logger)
	client := w.kube.CoordinationV1().Leases(w.namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			limited, cancel := context.WithTimeout(ctx, w.timeout)
			defer cancel()
			list, err := client.List(limited, o)
			if err != nil {
				w.down(ctx, loud, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			changes, err := client.Watch(ctx, o)
			if err != nil {
				w.down(ctx, loud, err)
			} else {
				w.up(loud)
			}
			return changes, err
		},
	}
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(source, w.kube), &coordinationv1.Lease{},
		watchStore{w}, cache.ReflectorOptions{
			Logger: &logger,
			Name:   "leases of " + w.namespace,
			// The default would grow to 30 s: an API server that is back is to be noticed at once.
			Backoff: &wait.Backoff{Duration: w.retry / 4, Factor: 2, Jitter: 0.2, Steps: 3, Cap: w.retry},
		})
	for ctx.Err() == nil {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			w.down(ctx, loud, err)
		}
		pause(ctx, w.retry/2+rand.N(w.retry/2))
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// watchStore is where the reflector puts what it sees.
type watchStore struct{ *watch }

func (s watchStore) Add(obj any) error { return s.Update(obj) }

func (s watchStore) Update(obj any) error {
	l, err := asLease(obj)
	if err == nil {
		s.observer.saw(l)
	}
	return err
}

func (s watchStore) Delete(obj any) error {
	l, err := asLease(obj)
	if err == nil {
		s.observer.gone(Name{l.Namespace, l.Name}, l.ResourceVersion)
	}
	return err
}

func (s watchStore) Replace(objs []any, version string) error {
	leases := make([]*coordinationv1.Lease, len(objs))
	for i, obj := range objs {
		l, err := asLease(obj)
		if err != nil {
			return err
		}
		leases[i] = l
	}
	s.observer.list(s.namespace, leases, version)
	return nil
}

func (watchStore) Resync() error { return nil }

func asLease(obj any) (*coordinationv1.Lease, error) {
	l, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return nil, fmt.Errorf("watch leases: got a %T", obj)
	}
	return l, nil
}
