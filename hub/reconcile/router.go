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
	Cluster *cache.Cluster
	// Elsewhere takes the last state of a VolumeAttachment of a driver that this process does not work for.
	Elsewhere func(*storagev1.VolumeAttachment)

	listeners sync.Map // of Listener, by CSI driver name, and by finalizer
}

// Listener takes the events of one driver. Its methods must not block.
type Listener interface {
	// AttachmentChanged takes a VolumeAttachment that was added, where before is nil, has changed, or is gone, where now is nil.
	AttachmentChanged(before, now *storagev1.VolumeAttachment)
	// Look is called when a change may help a VolumeAttachment.
	Look(name string)
	// LookAtAll is called when attachRequired of the driver has changed.
	LookAtAll()
}

// Open hands the events of a driver to a listener until Close is called with that listener.
func (r *Router) Open(driver string, l Listener) {
	r.listeners.Store(driver, l)
	r.listeners.Store(attach.Finalizer(driver), l)
}

// Close hands no more events to a listener.
func (r *Router) Close(driver string, l Listener) {
	r.listeners.CompareAndDelete(driver, l)
	r.listeners.CompareAndDelete(attach.Finalizer(driver), l)
}

// listener returns the listener of a driver or finalizer, nil if there is none.
func (r *Router) listener(key string) Listener {
	open, _ := r.listeners.Load(key)
	l, _ := open.(Listener)
	return l
}

// worker returns the Worker of a driver or finalizer, nil if this process does not work for the driver.
func (r *Router) worker(key string) *Worker {
	w, _ := r.listener(key).(*Worker)
	return w
}

// Handlers returns the handlers of the caches' events. They only look up and enqueue: a slow handler would
// delay every driver.
func (r *Router) Handlers() cache.Handlers {
	return cache.Handlers{Attachments: typed(r.onAttachment), Volumes: typed(r.onVolume), Drivers: typed(r.onDriver), Nodes: typed(r.onNode)}
}

// typed returns handlers of one type of objects. before is nil for an object that was added, and now for an object that is gone.
// missed: the watch has missed the deletion, and before may not be the last state. A panic is only logged: an
// object that causes one must not end the process, and with it the work for every driver.
func typed[T any](changed func(before, now *T, missed bool)) toolscache.ResourceEventHandlerFuncs {
	handle := func(old, obj any, missed bool) {
		before, _ := old.(*T)
		if now, _ := obj.(*T); before != nil || now != nil {
			panics.Contain(func(err error) { klog.Background().Error(err, "Panic while handling a watch event") }, func() { changed(before, now, missed) })
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { handle(nil, obj, false) },
		UpdateFunc: func(old, obj any) { handle(old, obj, false) },
		DeleteFunc: func(obj any) {
			unknown, missed := obj.(toolscache.DeletedFinalStateUnknown)
			if missed {
				obj = unknown.Obj
			}
			handle(obj, nil, missed)
		},
	}
}

func (r *Router) onAttachment(before, va *storagev1.VolumeAttachment, missed bool) {
	if before != nil && va != nil && before.UID != va.UID {
		// A relist reports neither the deletion of the old object nor the creation of the new object.
		r.onAttachment(before, nil, true)
		before = nil
	}
	l := r.listener(cmp.Or(va, before).Spec.Attacher)
	if _, works := l.(*Worker); va == nil && !missed && !works { // looked up once: a Worker may begin meanwhile
		r.Elsewhere(before)
	}
	if l != nil {
		l.AttachmentChanged(before, va)
	}
	if va != nil {
		return
	}
	// A finalizer of the PersistentVolume may have waited for this deletion, also a finalizer of another
	// driver.
	name := attach.VolumeName(before)
	if v := r.Cluster.Volume(name); v != nil {
		r.offer(v, v.Finalizers)
	} else if !r.Cluster.VolumeInUse(name) {
		r.Cluster.DropDeleted(name)
	}
}

// offer hands a PersistentVolume to the Workers whose finalizers are among some.
func (r *Router) offer(v *attach.Volume, finalizers []string) {
	for _, finalizer := range finalizers {
		if w := r.worker(finalizer); w != nil {
			w.volumeChanged(v)
		}
	}
}

// onVolume hands a PersistentVolume to the drivers whose finalizer it has, or had before. If it is new,
// its VolumeAttachments are tried again at once: they may have failed because it was missing.
func (r *Router) onVolume(before, v *attach.Volume, _ bool) {
	if v == nil {
		r.Cluster.KeepDeleted(before)
		v = before
	}
	if before != nil {
		r.offer(v, slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.Finalizers, before.Finalizers)))))
		return
	}
	r.offer(v, v.Finalizers)
	r.Cluster.DropDeleted(v.Name)
	for _, va := range r.Cluster.AttachmentsOfVolume(v.Name) {
		if l := r.listener(va.Spec.Attacher); l != nil {
			l.Look(va.Name)
		}
	}
}

// onDriver has a driver look at all its VolumeAttachments again if attachRequired has changed.
func (r *Router) onDriver(before, now *storagev1.CSIDriver, _ bool) {
	if l := r.listener(cmp.Or(now, before).Name); l != nil && cache.AttachRequired(before) != cache.AttachRequired(now) {
		l.LookAtAll()
	}
}

// onNode retries the VolumeAttachments at once that wait for their driver to register on a node, or for a place there.
func (r *Router) onNode(before, node *storagev1.CSINode, _ bool) {
	if node == nil {
		return
	}
	for _, registered := range node.Spec.Drivers {
		driver := registered.Name
		id, ok := attach.NodeID(before, driver)
		isNew := !ok || id != registered.NodeID
		if w := r.worker(driver); w != nil && (isNew || attach.Allocatable(before, driver) != attach.Allocatable(node, driver)) {
			w.Queue.NodeChanged(node.Name)
		}
		for _, va := range r.Cluster.AttachmentsOnNode(node.Name) {
			if l := r.listener(driver); isNew && l != nil && va.Spec.Attacher == driver {
				l.Look(va.Name)
			}
		}
	}
}
