// Package baseline attaches at the least possible cost: it is a client that knows every answer
// beforehand and makes only the calls that correctness needs. Whatever an attacher takes
// beyond that is the attacher's own cost.
//
// It watches VolumeAttachments, because there is no other way to learn of them, and
// keeps none. Handles and node IDs follow from names, so it reads nothing. An attach is
// one write of finalizer and annotations, the call, and one write of the status. The
// first attach of a volume has one more write, in parallel to the first: the finalizer of the
// PersistentVolume. A detach is the call, and one write that removes the finalizer.
// Everything runs at once, without a limit.
//
// It is no attacher: it retries nothing, and ends with the first error.
package baseline
