// Package cache is the hub's view of the Kubernetes API: Cluster for all drivers, and an Overlay
// for each.
//
// The flow: informers watch VolumeAttachments, PersistentVolumes, CSINodes and CSIDriver objects,
// once for the process. Each object is trimmed to the fields that the hub reads, and indexed. Of a
// PersistentVolume only an attach.Volume is kept. Events go to the Handlers of Start.
// Lookups answer from memory; methods that begin with Read ask the API server.
//
// A driver reads through its Overlay, which lays the driver's own writes over the caches until the
// watch reports them. So no worker acts on a state older than its own last write.
//
// The last state of a deleted PersistentVolume is kept while a VolumeAttachment names it
// (KeepDeleted): no other object may have the handle of the volume to detach.
//
// Inputs collects the inputs of a decision of hub/attach. The package itself writes nothing,
// decides nothing and knows no driver: package reconcile hands events to drivers.
package cache
