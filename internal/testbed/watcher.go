package testbed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
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
// first copy is complete; ctx bounds only that. onChange (may be nil) is told
// every change, one at a time: was is nil for a new object and now for one that
// is gone. The caller must Close the watcher.
func WatchVolumeAttachments(ctx context.Context, client kubernetes.Interface, onChange func(was, now *storagev1.VolumeAttachment)) (*Watcher[*storagev1.VolumeAttachment], error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	return watch(ctx, factory, factory.Storage().V1().VolumeAttachments().Informer(), onChange, summarizeVolumeAttachments)
}

// WatchNodes watches all Nodes, as WatchVolumeAttachments does.
func WatchNodes(ctx context.Context, client kubernetes.Interface, onChange func(was, now *corev1.Node)) (*Watcher[*corev1.Node], error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	return watch(ctx, factory, factory.Core().V1().Nodes().Informer(), onChange, summarizeNodes)
}

// WatchPersistentVolumes watches all PersistentVolumes, as
// WatchVolumeAttachments does.
func WatchPersistentVolumes(ctx context.Context, client kubernetes.Interface, onChange func(was, now *corev1.PersistentVolume)) (*Watcher[*corev1.PersistentVolume], error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	return watch(ctx, factory, factory.Core().V1().PersistentVolumes().Informer(), onChange, summarizeCount[*corev1.PersistentVolume])
}

// WatchPersistentVolumeClaims watches the PersistentVolumeClaims of all
// namespaces, as WatchVolumeAttachments does.
func WatchPersistentVolumeClaims(ctx context.Context, client kubernetes.Interface, onChange func(was, now *corev1.PersistentVolumeClaim)) (*Watcher[*corev1.PersistentVolumeClaim], error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	return watch(ctx, factory, factory.Core().V1().PersistentVolumeClaims().Informer(), onChange, summarizeCount[*corev1.PersistentVolumeClaim])
}

func watch[T runtime.Object](ctx context.Context, factory informers.SharedInformerFactory, informer cache.SharedIndexInformer, onChange func(was, now T), summary func([]T) string) (*Watcher[T], error) {
	w := &Watcher[T]{store: informer.GetStore(), summary: summary, changed: make(chan struct{})}
	if onChange == nil {
		onChange = func(T, T) {}
	}
	var none T
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { onChange(none, now.(T)); w.wake() },
		UpdateFunc: func(was, now any) { onChange(was.(T), now.(T)); w.wake() },
		DeleteFunc: func(was any) {
			if gone, ok := was.(cache.DeletedFinalStateUnknown); ok {
				was = gone.Obj
			}
			onChange(was.(T), none)
			w.wake()
		},
	}); err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	w.close = sync.OnceFunc(func() {
		close(stop)
		factory.Shutdown() // blocks until its goroutines have ended
	})
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		w.close()
		return nil, fmt.Errorf("watch: wait for the first copy: %w", context.Cause(ctx))
	}
	return w, nil
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

// AllAttached holds when there are n VolumeAttachments or more and all are
// attached and none is being deleted.
func AllAttached(n int) func([]*storagev1.VolumeAttachment) bool {
	return func(all []*storagev1.VolumeAttachment) bool {
		return len(all) >= n && !slices.ContainsFunc(all, func(va *storagev1.VolumeAttachment) bool {
			return !va.Status.Attached || va.DeletionTimestamp != nil
		})
	}
}

// NoneLeft holds when there are no objects.
func NoneLeft[T runtime.Object](all []T) bool { return len(all) == 0 }

// VolumesAttached counts the volumes in status.volumesAttached of all nodes.
func VolumesAttached(nodes []*corev1.Node) int {
	n := 0
	for _, node := range nodes {
		n += len(node.Status.VolumesAttached)
	}
	return n
}

func summarizeVolumeAttachments(all []*storagev1.VolumeAttachment) string {
	var attached, deleting int
	var waiting []string
	errs := map[string]string{}
	for _, va := range all {
		switch {
		case va.DeletionTimestamp != nil:
			deleting++
			waiting = append(waiting, va.Name)
			if e := va.Status.DetachError; e != nil {
				errs[va.Name] = e.Message
			}
		case va.Status.Attached:
			attached++
		default:
			waiting = append(waiting, va.Name)
			if e := va.Status.AttachError; e != nil {
				errs[va.Name] = e.Message
			}
		}
	}
	text := fmt.Sprintf("%d VolumeAttachments: %d attached, %d being deleted, %d with an error", len(all), attached, deleting, len(errs))
	if len(waiting) > 0 {
		slices.Sort(waiting)
		text += "; not there yet: " + firstFew(waiting)
	}
	for _, name := range waiting {
		if message := errs[name]; message != "" {
			return text + "; error of " + name + ": " + message
		}
	}
	return text
}

func summarizeNodes(all []*corev1.Node) string {
	return fmt.Sprintf("%d Nodes with %d volumes attached", len(all), VolumesAttached(all))
}

func summarizeCount[T runtime.Object](all []T) string {
	var none T
	return fmt.Sprintf("%d objects of type %T", len(all), none)
}

func firstFew(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
