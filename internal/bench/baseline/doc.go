// Package baseline is the least that attaching can cost: a client that knows every answer
// beforehand and makes only the calls that correctness needs. What an attacher takes
// beyond it is the attacher's own.
//
// It watches VolumeAttachments, because there is no other way to learn of them, and
// keeps none. Handles and node IDs follow from names, so it reads nothing. An attach is
// one write of finalizer and annotations, the call, and one write of the status; a
// volume's first attach is one more write, the PersistentVolume's finalizer, beside the
// other. A detach is the call, and one write that takes the finalizer away. Everything
// runs at once, without a limit.
//
// It is no attacher: it retries nothing, and ends with the first error.
package baseline
