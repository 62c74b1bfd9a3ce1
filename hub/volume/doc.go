// Package volume has what is required and believed of the volumes of one driver, and decides which step comes next.
//
// A Table has all that this process believes about a driver's volumes:
//
//   - An Attachment is a VolumeAttachment that this process has worked on.
//   - A Publication is what is believed about a volume at one target (volume handle and node ID):
//     that it is, or may be, published there, known from a call or from what objects record. An Attachment
//     owns it, or it is Dangling: its former owner is gone, or requires the volume at another target now.
//   - A Run is one run on an Attachment: the plan for its objects as they are now, and what the run has found out. Each Effect is one
//     step to the outside: NextEffect returns the next one, Apply notes how it ended. Package reconcile makes the steps and decides
//     nothing.
//
// An Attachment's next is pure: it uses no clock, lock or goroutine.
//
// Which work starts, and when, is decided by the Table's Queue (hub/queue), which asks the Table what is believed.
//
// # Rules
//
// How a publication ends: by an unpublish that succeeds, or by a VolumeAttachment that publishes at its target.
// A dangling publication also ends if a VolumeAttachment owns it (package reconcile reads them), if the driver
// answers for stuckAfter that it does not know it (Hopeless), or without a call if the driver
// neither requires nor supports attaching. It is not unpublished while a VolumeAttachment may own or require it there, or
// while the node that has the node ID uses the volume (package reconcile reads both). A VolumeAttachment disowns its
// publication at a previous target that the driver does not unpublish: after one answer for an attach,
// after three for a detach, and before the note of that target is overwritten or removed.
//
// A VolumeAttachment that is not being deleted is detached because attachRequired became false. Its status is written before
// the call, and its finalizer goes last: what says "attached" while its publication is Unpublished is corrected (Required).
//
// A dangling publication withholds a PersistentVolume's finalizer for at most stuckAfter, is tried again
// at the longest backoff, and stays visible.
//
// Terms. Dangling publications outlive terms of the driver's lease, and the
// driver's absence from the configuration. A publication that was dangling before a gap in the
// lease has Gap set until the next term confirms it, as another process may have detached it. A
// publication whose owner vanished while another process worked is Unconfirmed, and dropped by a takeover a day later.
// Both end if another process is seen to detach the volume there, or to attach a single-node volume
// elsewhere.
//
// Listings. If the driver has answered an unpublish, a dangling publication ends by two listings in a row
// that have the volume, and not at that node ID. They must have begun later than timeout after the first
// such answer: nothing has published the volume there since.
//
// A publication that only the driver's list shows (AddDanglingFromList) is dangling too, with a former owner without a name.
// It ends as soon as a listing does not show it, and with the term: the next listings show it again. What a
// listing says about a target counts only if no item was there since the listing began (Listing).
//
// # Choices
//
// An Attachment is kept until its object is gone, if a worker had it: the secrets of its publish are needed
// when the Secret is deleted first. VolumeAttachments that were attached before a restart and need
// nothing have no Attachment.
//
// There is no index of volume handles: only for a dangling publication are all VolumeAttachments of the driver looked through, and
// only for the finalizer of a PersistentVolume all that is believed.
//
// A publication that a VolumeAttachment owns is never given up: it is disowned first, and only a dangling
// publication is given up.
package volume
