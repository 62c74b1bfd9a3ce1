package cache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// heard is when the API server last sent something about a resource: the answer to a list, the begin of a watch,
// an event or a bookmark. client-go 0.37 calls none of its reflector metrics, and a resourceVersion that stays the
// same does not tell a quiet resource from a dead watch.
type heard struct{ nanoseconds atomic.Int64 } // since 1970; 0 before the first

func (h *heard) note() { h.nanoseconds.Store(time.Now().UnixNano()) }

// follow notes what a ListWatch receives. It must be called before the ListWatch is used.
func (h *heard) follow(all *toolscache.ListWatch) {
	list, begin := all.ListWithContextFunc, all.WatchFuncWithContext
	all.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		listed, err := list(ctx, o)
		if err == nil {
			h.note()
		}
		return listed, err
	}
	all.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := begin(ctx, o)
		if err != nil {
			return w, err
		}
		h.note()
		return h.pass(w), nil
	}
}

// heardWatch passes the events of a watch on. It ends with the watch, or when it is stopped.
type heardWatch struct {
	from    watch.Interface
	events  chan watch.Event
	stop    sync.Once
	stopped chan struct{}
}

func (h *heard) pass(from watch.Interface) *heardWatch {
	w := &heardWatch{from: from, events: make(chan watch.Event), stopped: make(chan struct{})}
	go func() {
		defer close(w.events)
		for e := range from.ResultChan() {
			if e.Type != watch.Error { // client-go sends it also when the connection is lost
				h.note()
			}
			select {
			case w.events <- e:
			case <-w.stopped:
				return
			}
		}
	}()
	return w
}

// ResultChan implements watch.Interface.
func (w *heardWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *heardWatch) Stop() {
	w.stop.Do(func() { close(w.stopped) })
	w.from.Stop()
}

// LastHeard returns for each watched resource when the API server last sent something about it: the answer to a
// list, the begin of a watch, an event or a bookmark. A resource that it never sent anything about is not there.
func (c *Cluster) LastHeard() map[string]time.Time {
	all := map[string]time.Time{}
	for resource, h := range c.heard {
		if n := h.nanoseconds.Load(); n > 0 {
			all[resource] = time.Unix(0, n)
		}
	}
	return all
}
