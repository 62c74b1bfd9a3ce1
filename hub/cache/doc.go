// Package cache is the hub's view of the Kubernetes API: Cluster for all drivers, and an Overlay
// for each.
//
// The flow: informers watch VolumeAttachments, PersistentVolumes, CSINodes and CSIDriver objects,
// once for the process. Each object is trimmed to what the hub looks at, a PersistentVolume is
// encoded besides (StoredVolume), and what is left is indexed. Events go to the Handlers that
// Listen adds. Lookups answer from memory; methods that begin with Read ask the API server.
//
// A driver reads through its Overlay. There, what the driver has written lies over the caches
// until the watch reports it, so that no worker acts on a state older than its own last write.
//
// The last state of a PersistentVolume that is gone is kept while a VolumeAttachment names it
// (KeepDeleted): only it may have the handle of the volume to detach.
//
// ReadInputs collects what hub/attach decides by. The package itself writes nothing, decides nothing and
// knows no driver: package hub hands events to drivers.
package cache
