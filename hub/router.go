package hub

import (
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

// router hands each event of the cluster to the driver that it concerns, when it
// arrives: a driver's queue never sees what belongs to another one. Objects of
// attachers that are not served here are left alone.
type router struct {
	cluster *cache.Cluster
	// stray takes the last state of a VolumeAttachment that is gone, if nobody works for its
	// driver here. It must not block.
	stray    func(*storagev1.VolumeAttachment)
	windDown *windDown

	mu          sync.RWMutex
	byName      map[string]listener // CSI driver name
	byFinalizer map[string]*driver
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

func newRouter(c *cache.Cluster, stray func(*storagev1.VolumeAttachment), w *windDown) *router {
	return &router{cluster: c, stray: stray, windDown: w, byName: map[string]listener{}, byFinalizer: map[string]*driver{}}
}

// open begins to hand events to a driver, unless it has been closed.
func (r *router) open(d *driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.gone {
		return
	}
	r.byName[d.name] = d
	r.byFinalizer[d.finalizer] = d
}

// close ends that for ever.
func (r *router) close(d *driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d.gone = true
	if r.byName[d.name] == d {
		delete(r.byName, d.name)
	}
	if r.byFinalizer[d.finalizer] == d {
		delete(r.byFinalizer, d.finalizer)
	}
}

// observe begins to hand the events of a driver to somebody who only watches.
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

// listener returns who takes the events of a driver, nil for nobody.
func (r *router) listener(driver string) listener {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName[driver]
}

// ownerOf returns the driver that is served here and has a finalizer, nil if there is none.
func (r *router) ownerOf(finalizer string) *driver {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byFinalizer[finalizer]
}

// listen registers the router with the caches, before they are filled. The
// handlers only look up and enqueue: a slow one would delay every driver.
func (r *router) listen() error {
	return r.cluster.Listen(cache.Handlers{
		Attachments: toolscache.ResourceEventHandlerFuncs{
			AddFunc: contained(func(obj any) { r.attachmentChanged(nil, obj) }),
			UpdateFunc: func(before, obj any) {
				contained(func(obj any) { r.attachmentChanged(before, obj) })(obj)
			},
			DeleteFunc: contained(r.attachmentGone),
		},
		Volumes: toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				contained(func(obj any) { r.volumeChanged(nil, obj) })(obj)
				contained(r.volumeAppeared)(obj)
			},
			UpdateFunc: func(before, obj any) {
				contained(func(obj any) { r.volumeChanged(before, obj) })(obj)
			},
			DeleteFunc: contained(r.volumeGone),
		},
		Drivers: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    contained(r.driverChanged),
			UpdateFunc: func(_, obj any) { contained(r.driverChanged)(obj) },
			DeleteFunc: func(obj any) { contained(r.driverChanged)(lastState(obj)) },
		},
		Nodes: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { r.nodeChanged(nil, obj) },
			UpdateFunc: r.nodeChanged,
		},
	})
}

// contained keeps an object that makes a handler panic from ending the process, and
// with it the work for every driver.
func contained(handle func(obj any)) func(obj any) {
	return func(obj any) {
		if err := panics.Catch(func() { handle(obj) }); err != nil {
			klog.Background().Error(err, "Handling an event went wrong")
		}
	}
}

func (r *router) attachmentChanged(before, after any) {
	old, _ := before.(*storagev1.VolumeAttachment)
	va, ok := after.(*storagev1.VolumeAttachment)
	if ok && old != nil && old.UID != va.UID {
		// A relist has seen neither the end of one nor the begin of the other.
		r.attachmentGone(toolscache.DeletedFinalStateUnknown{Key: old.Name, Obj: old})
		old = nil
	}
	if ok {
		if l := r.listener(va.Spec.Attacher); l != nil {
			l.onAttachment(old, va)
		}
		r.windDown.driver(va.Spec.Attacher)
	}
}

func (r *router) attachmentGone(obj any) {
	va, ok := lastState(obj).(*storagev1.VolumeAttachment)
	if !ok {
		return
	}
	l := r.listener(va.Spec.Attacher)
	if l != nil {
		l.onAttachmentGone(va)
	}
	_, missed := obj.(toolscache.DeletedFinalStateUnknown)
	if _, working := l.(*driver); !working && !missed {
		r.stray(va)
	}
	r.windDown.driver(va.Spec.Attacher)
	// Whoever guards the volume may have waited for this VolumeAttachment to go,
	// also if that was another driver's.
	name := attach.VolumeName(va)
	if v := r.cluster.StoredVolume(name); v != nil {
		r.volumeChanged(nil, v)
	} else if !r.cluster.VolumeInUse(name) {
		r.cluster.DropDeleted(name)
	}
}

// lastState returns the object of a deletion. Where the watch has missed the
// deletion itself, that is the last one that the cache had, and it may be nil.
func lastState(obj any) any {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return obj
}

// volumeChanged takes a PersistentVolume to the drivers that guard it, or did before.
func (r *router) volumeChanged(before, after any) {
	v, ok := after.(*cache.StoredVolume)
	if !ok {
		return
	}
	guards := v.Finalizers()
	if old, ok := before.(*cache.StoredVolume); ok {
		guards = slices.Concat(guards, v.LostFinalizers(old))
	}
	for _, finalizer := range guards {
		if d := r.ownerOf(finalizer); d != nil {
			d.onVolume(v.PersistentVolume())
		}
	}
	r.windDown.volume(guards)
}

// volumeAppeared retries at once what failed for want of a PersistentVolume.
func (r *router) volumeAppeared(obj any) {
	if v, ok := obj.(*cache.StoredVolume); ok {
		r.cluster.DropDeleted(v.Name())
		r.retryNow(r.cluster.AttachmentsOfVolume(v.Name()))
	}
}

func (r *router) volumeGone(obj any) {
	v, ok := lastState(obj).(*cache.StoredVolume)
	if !ok {
		return
	}
	r.cluster.KeepDeleted(v)
	for _, finalizer := range v.Finalizers() {
		if d := r.ownerOf(finalizer); d != nil {
			d.overlay.PersistentVolumeChanged(v.PersistentVolume()) // forgets the write that took the finalizer
		}
	}
	r.windDown.volume(v.Finalizers())
}

// driverChanged has a driver look at all its VolumeAttachments again: whether it
// requires attaching at all may have changed.
func (r *router) driverChanged(obj any) {
	if object, ok := obj.(*storagev1.CSIDriver); ok {
		if l := r.listener(object.Name); l != nil {
			l.lookAgain()
		}
	}
}

// nodeChanged retries at once what waits for a driver to register on a node.
func (r *router) nodeChanged(before, after any) {
	node, ok := after.(*storagev1.CSINode)
	if !ok {
		return
	}
	known := map[string]string{}
	if old, ok := before.(*storagev1.CSINode); ok {
		for _, d := range old.Spec.Drivers {
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
