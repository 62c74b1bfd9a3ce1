// Package attach knows what one VolumeAttachment or one PersistentVolume needs.
//
// The flow: Facts (what is known, from caches) go into Decide, a pure function,
// and a Plan comes out: nothing, attach, detach, or a write alone. An Attacher
// makes the steps of a Plan: finalizers, the CSI call, the status. Each is a
// method that makes one step to the outside and remembers nothing.
//
// A Record is what is known of a volume that may be published at a target: from a Plan
// that was carried out, or from what the objects say (Recorded, LastRecorded).
//
// A write is a Patch: operations that test what it was made from. The Writer sends it,
// and nothing else writes: it limits, times out, fences and records each write.
//
// Drift compares what is attached with a listing of the driver's volumes, and
// DriftCount says when a difference has been seen often enough to count.
//
// ForeignWrite tells from managedFields that another attacher writes what the hub
// writes; the hub's own field manager is FieldManager.
//
// Observe says of a driver that another attacher serves whether the hub would have
// done the same: it decides as above, and nothing is carried out.
//
// The behaviour is that of the csi-attacher sidecar (kubernetes-csi/external-attacher
// v4.12): the same finalizers, annotation, status and order towards the storage
// system. Where it differs on purpose, the place says why.
//
// The package does not choose the next step, queue, retry or watch: that is package
// hub, with package volume.
package attach
