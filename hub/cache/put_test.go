package cache

import (
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// put stores objects in the form in which the watch would, without an event, as cachetest.Put does.
func put(c *Cluster, objects ...any) error {
	for _, obj := range objects {
		kept, err := Kept(obj)
		if err != nil {
			return err
		}
		if err := informerOf(c, kept).GetIndexer().Add(kept); err != nil {
			return err
		}
	}
	return nil
}

func removeFrom(c *Cluster, obj any) error { return informerOf(c, obj).GetIndexer().Delete(obj) }

func informerOf(c *Cluster, obj any) toolscache.SharedIndexInformer {
	switch obj.(type) {
	case *storagev1.VolumeAttachment:
		return c.Attachments
	case *storagev1.CSINode:
		return c.Nodes
	case *storagev1.CSIDriver:
		return c.Drivers
	}
	return c.Volumes
}
