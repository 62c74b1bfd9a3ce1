package hub

import (
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
)

// router hands each event of the cluster to the driver that it concerns, when it
// arrives: a driver's queue never sees the objects of another one. Objects of
// attachers that are not served here are left alone.
type router struct {
	hub     *Hub
	cluster *cache.Cluster

	mu          sync.RWMutex
	byName      map[string]listener // by CSI driver name; guarded by mu
	byFinalizer map[string]*leader  // guarded by mu
}

// listener takes the events of one driver. Its methods must not block.
type listener interface {
	// onAttachment takes a VolumeAttachment that was added, where before is nil, or has
	// changed.
	onAttachment(before, va *storagev1.VolumeAttachment)
	// onAttachmentGone takes the last state of one that is gone.
	onAttachmentGone(va *storagev1.VolumeAttachment)
	// retryNow: something has changed that may help a VolumeAttachment.
	retryNow(name string)
	// lookAgain: what the driver requires may have changed.
	lookAgain()
}

func newRouter(h *Hub) *router {
	return &router{hub: h, cluster: h.cluster, byName: map[string]listener{}, byFinalizer: map[string]*leader{}}
}

// open begins to hand events to a leader.
func (r *router) open(l *leader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byName[l.name] = l
	r.byFinalizer[l.finalizer] = l
}

// close ends that.
func (r *router) close(l *leader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[l.name] == l {
		delete(r.byName, l.name)
	}
	if r.byFinalizer[l.finalizer] == l {
		delete(r.byFinalizer, l.finalizer)
	}
}

// observe begins to hand the events of a driver to a listener that only watches, until stop is called.
func (r *router) observe(name string, l listener) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byName[name] = l
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.byName[name] == l {
			delete(r.byName, name)
		}
	}
}

// listener returns what takes the events of a driver, nil for nothing.
func (r *router) listener(driver string) listener {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName[driver]
}

// owner returns the leader of the driver of a finalizer, nil if this process does not work for it.
func (r *router) owner(finalizer string) *leader {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byFinalizer[finalizer]
}

// handlers returns what takes the changes of the caches. Handlers only look up and enqueue: a slow one
// would delay every driver.
func (r *router) handlers() cache.Handlers {
	return cache.Handlers{
		Attachments: typed(r.attachmentChanged, r.attachmentGone, r.attachmentMissed),
		Volumes:     typed(r.volumeChanged, r.volumeGone, r.volumeGone),
		Drivers:     typed(func(_, d *storagev1.CSIDriver) { r.driverChanged(d) }, r.driverChanged, r.driverChanged),
		Nodes:       typed(r.nodeChanged, func(*storagev1.CSINode) {}, func(*storagev1.CSINode) {}),
	}
}

// typed returns handlers of one type of objects. before is nil for an object that was added. missed takes the
// last state in the cache of an object whose deletion the watch has missed. A panic is only logged: an
// object that causes one must not end the process, and with it the work for every driver.
func typed[T any](changed func(before, now *T), gone, missed func(last *T)) toolscache.ResourceEventHandlerFuncs {
	handle := func(obj any, f func(*T)) {
		if object, ok := obj.(*T); ok {
			contain(func(err error) { klog.Background().Error(err, "Handling an event went wrong") }, func() { f(object) })
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

func (r *router) attachmentChanged(before, va *storagev1.VolumeAttachment) {
	if before != nil && before.UID != va.UID {
		// A relist has seen neither the end of one nor the begin of the other.
		r.attachmentMissed(before)
		before = nil
	}
	if l := r.listener(va.Spec.Attacher); l != nil {
		l.onAttachment(before, va)
	}
	r.hub.windDown.note(va.Spec.Attacher)
}

func (r *router) attachmentGone(va *storagev1.VolumeAttachment) {
	l := r.listener(va.Spec.Attacher)
	if l != nil {
		l.onAttachmentGone(va)
	}
	if _, working := l.(*leader); !working {
		r.hub.observeDeletion(va)
	}
	r.released(va)
}

// attachmentMissed takes a state of a VolumeAttachment that is gone, which need not be the last one.
func (r *router) attachmentMissed(va *storagev1.VolumeAttachment) {
	if l := r.listener(va.Spec.Attacher); l != nil {
		l.onAttachmentGone(va)
	}
	r.released(va)
}

// released looks at what waited for a VolumeAttachment to go.
func (r *router) released(va *storagev1.VolumeAttachment) {
	r.hub.windDown.note(va.Spec.Attacher)
	// An owner of the PersistentVolume's finalizers may have waited for this VolumeAttachment to go,
	// also if it was another driver's.
	name := attach.VolumeName(va)
	if v := r.cluster.StoredVolume(name); v != nil {
		r.offer(v, v.Finalizers())
	} else if !r.cluster.VolumeInUse(name) {
		r.cluster.DropDeleted(name)
	}
}

// offer takes a PersistentVolume to the owners of some finalizers.
func (r *router) offer(v *cache.StoredVolume, finalizers []string) {
	for _, finalizer := range finalizers {
		if l := r.owner(finalizer); l != nil {
			l.onVolume(v.PersistentVolume())
		}
	}
	r.hub.windDown.note(finalizers...)
}

// volumeChanged takes a PersistentVolume to the drivers whose finalizer it has, or had before. A new one lets
// everything be tried again that failed for want of it.
func (r *router) volumeChanged(before, v *cache.StoredVolume) {
	if before != nil {
		r.offer(v, slices.Concat(v.Finalizers(), v.LostFinalizers(before)))
		return
	}
	r.offer(v, v.Finalizers())
	r.cluster.DropDeleted(v.Name())
	r.retryNow(r.cluster.AttachmentsOfVolume(v.Name()))
}

func (r *router) volumeGone(v *cache.StoredVolume) {
	r.cluster.KeepDeleted(v)
	for _, finalizer := range v.Finalizers() {
		if l := r.owner(finalizer); l != nil {
			l.overlay.PersistentVolumeChanged(v.PersistentVolume()) // forgets the write that took the finalizer
		}
	}
	r.hub.windDown.note(v.Finalizers()...)
}

// driverChanged has a driver look at all its VolumeAttachments again: whether it
// requires attaching at all may have changed.
func (r *router) driverChanged(object *storagev1.CSIDriver) {
	if l := r.listener(object.Name); l != nil {
		l.lookAgain()
	}
}

// nodeChanged retries at once what waits for a driver to register on a node.
func (r *router) nodeChanged(before, node *storagev1.CSINode) {
	known := map[string]string{}
	if before != nil {
		for _, d := range before.Spec.Drivers {
			known[d.Name] = d.NodeID
		}
	}
	for _, registered := range node.Spec.Drivers {
		if id, ok := known[registered.Name]; ok && id == registered.NodeID || r.listener(registered.Name) == nil {
			continue
		}
		for _, va := range r.cluster.AttachmentsOnNode(node.Name) {
			if va.Spec.Attacher == registered.Name {
				r.retryNow([]*storagev1.VolumeAttachment{va})
			}
		}
	}
}

func (r *router) retryNow(vas []*storagev1.VolumeAttachment) {
	for _, va := range vas {
		if l := r.listener(va.Spec.Attacher); l != nil {
			l.retryNow(va.Name)
		}
	}
}
