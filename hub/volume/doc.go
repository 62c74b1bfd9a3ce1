// Package volume decides what happens to the volumes of one driver, and when.
//
// A Table has all that this process wants and believes about a driver's volumes, under one mutex:
//
//   - A Claim is a VolumeAttachment that this process has worked on.
//   - A Publication is what is believed about a volume at one target (volume handle and node ID):
//     that it is, or may be, published there, known from a call or from what objects record. A claim owns
//     it, or it is Unowned: its former owner is gone, or wants the volume at another target now.
//   - An Entry is one piece of work: a claim, an unowned publication, or a finalizer on a
//     PersistentVolume. It has its own lane, backoff and failures.
//   - A Volume has the entries and the unowned publications of one volume handle.
//   - Next decides which entries of a volume may start. Only these are in a lane. The others are
//     blocked, and their Wait is the reason. A worker asks again with Reserve before it calls.
//   - A Pass is the work of one run on a claim. Each Effect is one step to the outside: NextEffect
//     returns the next one, Apply notes how it ended. Package hub makes the steps and decides nothing.
//
// Next and a claim's nextEffect, start and apply are pure: they use no clock, lock or goroutine.
//
// An entry's way: an event asks for it (Add), Next lets it into its lane, Run hands it to a worker,
// the worker plans a Pass and makes its effects, and ends the run (Done, DoneFor, Postpone).
//
// # Rules
//
// Calls. See Next: one call for a volume at a time, side by side only for multi-node volumes on
// different node IDs; a publish of a single-node volume waits for the unpublish elsewhere, unless that
// backs off after an answer of the driver, or has had a try since the publish became due.
//
// Lanes. Attaches and detaches each have half of the workers, so that a burst of the one does not
// stop the other; idle workers are lent to short calls, and repairs have a quarter at most (lanes.go). A node has
// at most maxPerNode calls in flight (nodes.go).
//
// Suspects. An entry during whose calls the connection ended more than three times in a row, by itself or because the driver
// answered nothing, may be what ends or blocks the driver's process. A new connection, Probe or term does not end its backoff,
// and it waits for a part of that again after the driver was away, so that the calls for other volumes have time.
//
// Full nodes (line.go). After a publish was refused because the node is full, attaches there wait in a line, unless
// their volume is, or may be, published there already (needsPlace). One goes
// for each detach. Else one goes as a try after a pause; each success lets two more go, and a refusal ends that. The
// pause doubles with each refusal in a row; but while all of these were of one volume, another volume is tried after
// the first pause, since the driver may refuse that volume alone. So a really full node gets one call for each pause,
// and tries are refused at most once more than they succeed.
//
// How a publication ends: by an unpublish that succeeds, or by a claim that publishes at its target.
// An unowned publication also ends if a VolumeAttachment owns it (package hub reads them), if the driver
// answers for stuckAfter that it does not know it (Hopeless), or without a call if the driver
// neither requires nor supports attaching. It is not unpublished while a VolumeAttachment may own or want it there, or
// while the node that has the node ID uses the volume (package hub reads both). A claim disowns its
// publication at a previous target that the driver does not unpublish: after one answer for an attach,
// after three for a detach, and before the note of that target is overwritten or removed.
//
// A VolumeAttachment that is not being deleted is detached because attachRequired became false. Its status is written before
// the call, and its finalizer goes last: what says "attached" while its publication is Unpublished is corrected (IsUnpublished).
//
// An unowned publication withholds a PersistentVolume's finalizer for at most stuckAfter, is tried again
// at the longest backoff, and stays visible.
//
// Terms. Entries belong to one term of the driver's lease. Unowned publications outlive terms, and the
// driver's absence from the configuration (gap.go). A publication that was unowned before a gap in the
// lease has Gap set until the next term confirms it, as another process may have detached it. A
// publication whose owner vanished while another process worked is Unconfirmed, and dropped after a day.
// Both end if another process is seen to detach the volume there, or to attach a single-node volume
// elsewhere.
//
// Listings. If the driver has answered an unpublish, an unowned publication ends by two listings in a row
// that have the volume, and not at that node ID. They must have begun later than timeout after the first
// such answer: nothing has published the volume there since.
//
// A publication that only the driver's list shows (Found) is unowned too, with a former owner without a name.
// It ends as soon as a listing does not show it, and with the term: the next listings show it again. What a
// listing says about a target counts only if no entry was there since the listing began (Listing).
//
// # Choices
//
// The Table's mutex is the only lock: volumes, lanes and slots of nodes depend on each other, and no
// method does more than bookkeeping under it.
//
// A claim is kept until its object is gone, if a worker had it: the secrets of its publish are needed
// when the Secret is deleted first. VolumeAttachments that were attached before a restart and need
// nothing have no claim.
//
// There is no index of volume handles. Entries of one volume find each other at the Volume; only for an
// unowned publication are all VolumeAttachments of the driver looked through.
//
// A publication that a claim owns is never given up: the claim disowns it first, and only an unowned
// publication is given up.
package volume
