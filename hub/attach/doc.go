// Package attach decides and carries out what one VolumeAttachment or one PersistentVolume needs.
//
// A Volume is what the hub needs of a PersistentVolume. An in-tree volume is translated to CSI once, by VolumeOf.
//
// The flow: the pure function Decide takes Inputs, which are read from caches, and returns a Plan:
// nothing, attach, detach, or only a write. An Attacher carries out the steps of a Plan:
// finalizers, the CSI call, the status. Each step is one method without state.
//
// A Record describes a volume that may be published at a target: from a Plan that was carried
// out, or from the objects (Recorded, LastRecorded).
//
// A write is a Patch: operations that test the object it was made from. The Writer sends it, and
// nothing else writes: it limits, times out, fences and records each write.
//
// Redact removes the values of secrets from errors of calls, and a Redactor from all other texts of a driver.
//
// Differences compares the hub's decision with what the other attacher of a driver did, and ConflictingWriter
// finds in managedFields that another attacher writes the status. The hub's own field manager is
// FieldManager.
//
// The behaviour is that of the csi-attacher sidecar (kubernetes-csi/external-attacher v4.12): the
// same finalizers, annotation, status and order of calls and writes. Intended differences are
// explained where they are made.
//
// The package does not choose the next step, queue, retry or watch: packages reconcile and volume do.
package attach
