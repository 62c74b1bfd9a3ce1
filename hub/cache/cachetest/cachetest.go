// Package cachetest changes what is in the caches of a cache.Cluster that is not started, for tests.
package cachetest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
)

// Put stores objects in the form in which the watch would, without an event. It trims the objects,
// which belong to the Cluster from then on.
func Put(c *cache.Cluster, objects ...any) error {
	for _, obj := range objects {
		informer, err := informerOf(c, obj)
		if err != nil {
			return err
		}
		if obj, err = cache.Transform(obj); err != nil {
			return err
		}
		if err := informer.GetIndexer().Add(obj); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes an object from its cache, without an event.
func Remove(c *cache.Cluster, obj any) error {
	informer, err := informerOf(c, obj)
	if err != nil {
		return err
	}
	return informer.GetIndexer().Delete(obj)
}

func informerOf(c *cache.Cluster, obj any) (toolscache.SharedIndexInformer, error) {
	switch obj.(type) {
	case *storagev1.VolumeAttachment:
		return c.Attachments, nil
	case *corev1.PersistentVolume, *attach.Volume:
		return c.Volumes, nil
	case *storagev1.CSINode:
		return c.Nodes, nil
	case *storagev1.CSIDriver:
		return c.Drivers, nil
	}
	return nil, fmt.Errorf("there is no cache for %T", obj)
}
