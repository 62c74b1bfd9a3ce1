package reconcile

import (
	"cmp"
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

// Router hands each event of the cluster to the driver that it concerns: a driver's queue never sees the
// objects of another driver. It ignores objects of attachers that are not served here.
type Router struct {
	cluster *cache.Cluster
	// elsewhere takes the last state of a VolumeAttachment of a driver that this process does not work for.
	elsewhere func(*storagev1.VolumeAttachment)

	mu        sync.RWMutex
	listeners map[string]Listener // by CSI driver name, and by finalizer; guarded by mu
}

// Listener takes the events of one driver. Its methods must not block.
type Listener interface {
	// OnAttachment takes a VolumeAttachment that was added, where before is nil, or has
	// changed.
	OnAttachment(before, va *storagev1.VolumeAttachment)
	// OnAttachmentGone takes the last state of a VolumeAttachment that was deleted.
	OnAttachmentGone(va *storagev1.VolumeAttachment)
	// RetryNow is called when a change may help a VolumeAttachment.
	RetryNow(name string)
	// LookAgain is called when attachRequired of the driver has changed.
	LookAgain()
}

// NewRouter returns a Router that hands events to nobody.
func NewRouter(cluster *cache.Cluster, elsewhere func(*storagev1.VolumeAttachment)) *Router {
	return &Router{cluster: cluster, elsewhere: elsewhere, listeners: map[string]Listener{}}
}

// Open hands the events of a driver to a listener until Close is called with that listener.
func (r *Router) Open(driver string, l Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners[driver], r.listeners[attach.Finalizer(driver)] = l, l
}

// Close hands no more events to a listener.
func (r *Router) Close(driver string, l Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range []string{driver, attach.Finalizer(driver)} {
		if r.listeners[key] == l {
			delete(r.listeners, key)
		}
	}
}

// listener returns the listener of a driver or finalizer, nil if there is none.
func (r *Router) listener(key string) Listener {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.listeners[key]
}

// owner returns the leader of the driver of a finalizer, nil if this process does not work for it.
func (r *Router) owner(finalizer string) *Worker {
	l, _ := r.listener(finalizer).(*Worker)
	return l
}

// Handlers returns the handlers of the caches' events. They only look up and enqueue: a slow handler would
// delay every driver.
func (r *Router) Handlers() cache.Handlers {
	return cache.Handlers{
		Attachments: typed(r.attachmentChanged, r.attachmentGone, r.attachmentMissed),
		Volumes:     typed(r.volumeChanged, r.volumeGone, r.volumeGone),
		Drivers:     typed(r.driverChanged, r.driverGone, r.driverGone),
		Nodes:       typed(r.nodeChanged, func(*storagev1.CSINode) {}, func(*storagev1.CSINode) {}),
	}
}

// typed returns handlers of one type of objects. before is nil for an object that was added. missed takes the
// last state in the cache of an object whose deletion the watch has missed. A panic is only logged: an
// object that causes one must not end the process, and with it the work for every driver.
func typed[T any](changed func(before, now *T), gone, missed func(last *T)) toolscache.ResourceEventHandlerFuncs {
	handle := func(obj any, f func(*T)) {
		if object, ok := obj.(*T); ok {
			panics.Contain(func(err error) { klog.Background().Error(err, "Panic while handling a watch event") }, func() { f(object) })
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { handle(obj, func(now *T) { changed(nil, now) }) },
		UpdateFunc: func(old, obj any) {
			before, _ := old.(*T)
			handle(obj, func(now *T) { changed(before, now) })
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				handle(unknown.Obj, missed)
			} else {
				handle(obj, gone)
			}
		},
	}
}

func (r *Router) attachmentChanged(before, va *storagev1.VolumeAttachment) {
	if before != nil && before.UID != va.UID {
		// A relist reports neither the deletion of the old object nor the creation of the new object.
		r.attachmentMissed(before)
		before = nil
	}
	if l := r.listener(va.Spec.Attacher); l != nil {
		l.OnAttachment(before, va)
	}
}

func (r *Router) attachmentGone(va *storagev1.VolumeAttachment) {
	if _, working := r.listener(va.Spec.Attacher).(*Worker); !working {
		r.elsewhere(va)
	}
	r.attachmentMissed(va)
}

// attachmentMissed takes a state of a VolumeAttachment that is gone, which may not be the last state.
func (r *Router) attachmentMissed(va *storagev1.VolumeAttachment) {
	if l := r.listener(va.Spec.Attacher); l != nil {
		l.OnAttachmentGone(va)
	}
	// A finalizer of the PersistentVolume may have waited for this deletion, also a finalizer of another
	// driver.
	name := attach.VolumeName(va)
	if v := r.cluster.Volume(name); v != nil {
		r.offer(v, v.Finalizers)
	} else if !r.cluster.VolumeInUse(name) {
		r.cluster.DropDeleted(name)
	}
}

// offer hands a PersistentVolume to the leaders that own some finalizers.
func (r *Router) offer(v *attach.Volume, finalizers []string) {
	for _, finalizer := range finalizers {
		if l := r.owner(finalizer); l != nil {
			l.onVolume(v)
		}
	}
}

// volumeChanged hands a PersistentVolume to the drivers whose finalizer it has, or had before. If it is new,
// its VolumeAttachments are tried again at once: they may have failed because it was missing.
func (r *Router) volumeChanged(before, v *attach.Volume) {
	if before != nil {
		r.offer(v, slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.Finalizers, before.Finalizers)))))
		return
	}
	r.offer(v, v.Finalizers)
	r.cluster.DropDeleted(v.Name)
	for _, va := range r.cluster.AttachmentsOfVolume(v.Name) {
		if l := r.listener(va.Spec.Attacher); l != nil {
			l.RetryNow(va.Name)
		}
	}
}

func (r *Router) volumeGone(v *attach.Volume) {
	r.cluster.KeepDeleted(v)
	for _, finalizer := range v.Finalizers {
		if l := r.owner(finalizer); l != nil {
			l.Overlay.PersistentVolumeChanged(v) // forgets the write that took the finalizer
		}
	}
}

// driverChanged has a driver look at all its VolumeAttachments again if attachRequired has changed.
func (r *Router) driverChanged(before, object *storagev1.CSIDriver) {
	if l := r.listener(cmp.Or(object, before).Name); l != nil && cache.AttachRequired(before) != cache.AttachRequired(object) {
		l.LookAgain()
	}
}

func (r *Router) driverGone(last *storagev1.CSIDriver) { r.driverChanged(last, nil) }

// nodeChanged retries the VolumeAttachments at once that wait for their driver to register on a node, or for a place
// there.
func (r *Router) nodeChanged(before, node *storagev1.CSINode) {
	for _, registered := range node.Spec.Drivers {
		id, ok := attach.NodeID(before, registered.Name)
		ok = ok && id == registered.NodeID
		if l := r.owner(registered.Name); l != nil && (!ok || attach.Allocatable(before, registered.Name) != attach.Allocatable(node, registered.Name)) {
			l.Queue.NodeChanged(node.Name)
		}
		l := r.listener(registered.Name)
		if ok || l == nil {
			continue
		}
		for _, va := range r.cluster.AttachmentsOnNode(node.Name) {
			if va.Spec.Attacher == registered.Name {
				l.RetryNow(va.Name)
			}
		}
	}
}
