package registry

import (
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// EndpointAnnotation of a CSIDriver object says where the controller of the driver
// listens.
const EndpointAnnotation = "attach-hub/endpoint"

// csiDriverOrigin begins Driver.Source of the drivers that have a CSIDriver object.
const csiDriverOrigin = "CSIDriver "

// NewCSIDriverSource returns the Source of the drivers that have a CSIDriver
// object; those with attachRequired false have WindDown set. Their Endpoint is what
// EndpointAnnotation says. While the API server cannot be reached the set stays as it is.
// It needs get, list and watch on csidrivers.
func NewCSIDriverSource(objects storagev1client.CSIDriversGetter) Source {
	client := objects.CSIDrivers()
	return func(ctx context.Context, send func([]Driver)) {
		changed := make(chan struct{}, 1)
		store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: plainListWatch{&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return client.List(ctx, o)
				},
				WatchFuncWithContext: client.Watch,
			}},
			ObjectType: &storagev1.CSIDriver{},
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc:    func(any) { notify(changed) },
				UpdateFunc: func(any, any) { notify(changed) },
				DeleteFunc: func(any) { notify(changed) },
			},
		})
		defer start(ctx, informer.RunWithContext)()
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return
		}
		for {
			send(driversOf(store.List()))
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

// plainListWatch makes the informer list and then watch. The newer way, a watch
// that begins with all objects, sleeps for up to a minute without looking at its
// context while the API server refuses connections.
type plainListWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go looks for.
func (plainListWatch) IsWatchListSemanticsUnSupported() bool { return true }

// driversOf returns the drivers of CSIDriver objects.
func driversOf(objects []any) []Driver {
	var drivers []Driver
	for _, o := range objects {
		object := o.(*storagev1.CSIDriver)
		d := Driver{
			Name:     object.Name,
			Endpoint: Endpoint(object.Annotations[EndpointAnnotation]),
			Source:   csiDriverOrigin + object.Name,
		}
		if !ptr.Deref(object.Spec.AttachRequired, true) {
			d.WindDown, d.Source = true, d.Source+" (attachRequired: false)"
		}
		drivers = append(drivers, d)
	}
	return drivers
}

// maxDeleted bounds how many deleted CSIDriver objects are remembered: objects with names
// of their own may come and go for as long as the process lives.
const maxDeleted = 1000

// objectMemory remembers the drivers whose CSIDriver object was deleted while this process
// ran. An object that is deleted, or made anew by an upgrade of the driver, must not leave
// volumes attached that nobody can detach: the object alone said where the driver listens.
type objectMemory struct {
	seen    []Driver // the last set of drivers that have an object
	deleted []Driver // as they were last seen, with WindDown; the latest deletion is the last
}

// withDeleted takes in the drivers that have an object now, and returns them with those
// whose object was deleted.
func (m *objectMemory) withDeleted(now []Driver) []Driver {
	exists := make(map[string]bool, len(now))
	for _, d := range now {
		exists[d.Name] = true
	}
	m.deleted = slices.DeleteFunc(m.deleted, func(d Driver) bool { return exists[d.Name] })
	for _, d := range m.seen {
		if !exists[d.Name] {
			d.WindDown, d.Source = true, csiDriverOrigin+d.Name+" (deleted)"
			m.deleted = append(m.deleted, d)
		}
	}
	m.seen = now
	m.deleted = slices.Delete(m.deleted, 0, max(0, len(m.deleted)-maxDeleted))
	return slices.Concat(now, m.deleted)
}
