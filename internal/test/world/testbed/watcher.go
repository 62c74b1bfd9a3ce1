package testbed

import (
	"context"
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Watcher keeps a current copy of all objects of one kind and wakes whoever
// waits for something to become true of them. It is an informer, because the
// API server closes bare watches under bursts; like one it may skip states in
// between, and it goes on when the API server is started again.
type Watcher[T runtime.Object] struct {
	store   cache.Store
	summary func([]T) string
	close   func()

	mu      sync.Mutex
	changed chan struct{} // closed at the next change; guarded by mu
}

// WatchVolumeAttachments watches all VolumeAttachments. It blocks until the
// first copy is complete and onChange has been told of it; ctx bounds only
// that. onChange (may be nil) is told every change, one at a time: was is nil
// for a new object and now for one that is gone. The caller must Close the
// watcher.
func WatchVolumeAttachments(ctx context.Context, client kubernetes.Interface, onChange func(was, now *storagev1.VolumeAttachment)) (*Watcher[*storagev1.VolumeAttachment], error) {
	return watchAll(ctx, client.StorageV1().VolumeAttachments(), onChange, summarizeVolumeAttachments)
}

// WatchNodes watches all Nodes, as WatchVolumeAttachments does.
func WatchNodes(ctx context.Context, client kubernetes.Interface, onChange func(was, now *corev1.Node)) (*Watcher[*corev1.Node], error) {
	return watchAll(ctx, client.CoreV1().Nodes(), onChange, summarize)
}

// WatchPersistentVolumes watches all PersistentVolumes, as
// WatchVolumeAttachments does.
func WatchPersistentVolumes(ctx context.Context, client kubernetes.Interface, onChange func(was, now *corev1.PersistentVolume)) (*Watcher[*corev1.PersistentVolume], error) {
	return watchAll(ctx, client.CoreV1().PersistentVolumes(), onChange, summarize)
}

// WatchLeases watches the Leases of one namespace, as WatchVolumeAttachments
// does.
func WatchLeases(ctx context.Context, client kubernetes.Interface, namespace string, onChange func(was, now *coordinationv1.Lease)) (*Watcher[*coordinationv1.Lease], error) {
	return watchAll(ctx, client.CoordinationV1().Leases(namespace), onChange, summarize)
}

// typedClient is what the clientset has for each kind; L is the kind's list.
type typedClient[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// plainListWatch makes the informer list and then watch. The newer way, a watch
// that begins with all objects, cannot be ended while the API server refuses
// connections: Close would block for up to a minute.
type plainListWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go looks for.
func (plainListWatch) IsWatchListSemanticsUnSupported() bool { return true }

func watchAll[T, L runtime.Object](ctx context.Context, client typedClient[L], onChange func(was, now T), summary func([]T) string) (*Watcher[T], error) {
	informer := cache.NewSharedIndexInformer(plainListWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, opts)
		},
		WatchFuncWithContext: client.Watch,
	}}, *new(T), 0, cache.Indexers{})
	w := &Watcher[T]{store: informer.GetStore(), summary: summary, changed: make(chan struct{})}
	handler, err := informer.AddEventHandler(w.handler(onChange))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", *new(T), err)
	}

	// The watch outlives the start and has Close to end it.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(running) })
	w.close = func() { stop(); wg.Wait() }
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		w.close()
		return nil, fmt.Errorf("watch %T: wait for the first copy: %w", *new(T), context.Cause(ctx))
	}
	return w, nil
}

func (w *Watcher[T]) handler(onChange func(was, now T)) cache.ResourceEventHandler {
	var none T
	changed := func(was, now T) {
		if onChange != nil {
			onChange(was, now)
		}
		w.wake()
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { changed(none, now.(T)) },
		UpdateFunc: func(was, now any) { changed(was.(T), now.(T)) },
		DeleteFunc: func(was any) {
			if missed, ok := was.(cache.DeletedFinalStateUnknown); ok {
				was = missed.Obj
			}
			changed(was.(T), none)
		},
	}
}

// Close ends the watch and blocks until it has ended. It may be called twice.
func (w *Watcher[T]) Close() { w.close() }

// List returns the objects as they are known now, in no order. They are shared
// and must not be changed.
func (w *Watcher[T]) List() []T {
	var objects []T
	for _, o := range w.store.List() {
		objects = append(objects, o.(T))
	}
	return objects
}

// Get returns the object of that name as it is known now; it must not be changed. The object has
// no namespace.
func (w *Watcher[T]) Get(name string) (object T, exists bool) {
	found, exists, err := w.store.GetByKey(name)
	if err != nil || !exists { // the store, which is in memory, gives no error
		return object, false
	}
	return found.(T), true
}

// Summary says how the objects are, for errors.
func (w *Watcher[T]) Summary() string { return w.summary(w.List()) }

// WaitFor blocks until holds is true of the objects. It is asked once at the
// beginning and after changes, and must not change the objects. When ctx ends
// first, the error says what was waited for and how things were at that time.
func (w *Watcher[T]) WaitFor(ctx context.Context, what string, holds func([]T) bool) error {
	for {
		// First the channel, then the objects: a change in between wakes.
		changed := w.nextChange()
		objects := w.List()
		if holds(objects) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: there are %s", what, context.Cause(ctx), w.summary(objects))
		}
	}
}

// WaitForOne blocks until holds is true of one object, or of its absence. For
// many who wait for one each, it is much less work than WaitFor. The object
// has no namespace.
func (w *Watcher[T]) WaitForOne(ctx context.Context, what, name string, holds func(object T, exists bool) bool) error {
	for {
		changed := w.nextChange()
		if holds(w.Get(name)) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s %s: %w", name, what, context.Cause(ctx))
		}
	}
}

func (w *Watcher[T]) nextChange() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

func (w *Watcher[T]) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}
