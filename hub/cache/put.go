package cache

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// Put stores objects in the form in which the watch would, without an event. It trims the objects,
// which belong to the Cluster from then on. It is for tests, of a Cluster that is not started.
func (c *Cluster) Put(objects ...any) error {
	for _, obj := range objects {
		informer, err := c.informerOf(obj)
		if err != nil {
			return err
		}
		if obj, err = toCache(obj); err != nil {
			return err
		}
		if err := informer.GetIndexer().Add(obj); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes an object from its cache, without an event. It is for tests, as Put is.
func (c *Cluster) Remove(obj any) error {
	informer, err := c.informerOf(obj)
	if err != nil {
		return err
	}
	return informer.GetIndexer().Delete(obj)
}

func (c *Cluster) informerOf(obj any) (toolscache.SharedIndexInformer, error) {
	switch obj.(type) {
	case *storagev1.VolumeAttachment:
		return c.attachments, nil
	case *corev1.PersistentVolume, *attach.Volume:
		return c.volumes, nil
	case *storagev1.CSINode:
		return c.nodes, nil
	case *storagev1.CSIDriver:
		return c.drivers, nil
	}
	return nil, fmt.Errorf("there is no cache for %T", obj)
}
