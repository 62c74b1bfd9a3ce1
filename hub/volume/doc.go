// Package volume decides what happens to the volumes of one driver, and when.
//
// A Table has all that this process wants and believes about a driver's volumes, under one mutex:
//
//   - A Claim is a VolumeAttachment that this process has worked on.
//   - A Publication is what is believed about a volume at one target (volume handle and node ID):
//     that it is, or may be, published there, known from a call or from what objects record. It
//     belongs to a claim, or it is Unowned: its VolumeAttachment is gone, or wants the volume at
//     another target now.
//   - An Entry is one piece of work: a claim, an unowned publication, or a finalizer on a
//     PersistentVolume. It has its own lane, backoff and failures.
//   - A Volume is what is placed at one volume handle: entries and unowned publications.
//   - Next says which entries of a volume may start. Only these are in a lane; the others are
//     blocked, and their Wait says by what. A worker asks again with Reserve before it calls.
//   - A Pass is one look of a worker at a claim. Each Effect is one step to the outside:
//     nextEffect says which comes, apply notes how it ended. Package hub makes the steps and decides nothing.
//
// Next and a claim's nextEffect, start and apply are pure: they use no clock, lock or goroutine.
//
// An entry's way: an event asks for it (Add), Next lets it into its lane, Run hands it to a worker,
// the worker plans a Pass and makes its effects, and says when to look again (Done, DoneFor,
// Postpone).
//
// # Rules
//
// Calls. See Next: one call for a volume at a time, side by side only for multi-node volumes on
// different node IDs; a publish of a single-node volume waits for the unpublish elsewhere, unless that
// backs off after an answer of the driver.
//
// Lanes. Attaches and detaches each have half of the workers, so that a burst on one side does not
// stop the other; what is idle is lent to short calls (lanes.go). A node has at most maxPerNode
// calls in flight (nodes.go).
//
// How a publication ends: by an unpublish that succeeds, or by a claim that publishes at its target.
// An unowned one also ends if a VolumeAttachment owns it (package hub reads them), if the driver
// answers for stuckAfter that it does not know it (Hopeless), or without a call if the driver
// neither requires nor supports attaching. What a claim cannot unpublish at its previous target is
// left unowned after one answer (attach) or three (detach), before the note of that target is
// overwritten or removed.
//
// What is unowned keeps a PersistentVolume's finalizer for at most stuckAfter, is tried again at the
// longest backoff, and stays visible.
//
// Terms. Entries belong to one term of the driver's lease. Unowned publications outlive terms, and the
// driver's absence from the configuration (gap.go). What was unowned before a gap in the lease carries
// Gap until the next term confirms it, as another process may have seen to it. What was seen to vanish
// while another process worked is Unconfirmed, and dropped after a day. Both end by what another
// process was seen to do: to detach there, or to attach a single-node volume elsewhere.
//
// Listings. An unowned publication ends by two listings in a row that have the volume, and not at that
// node ID, if the driver has answered an unpublish. They must have begun later than timeout after the
// first such answer: nothing has published the volume there since.
//
// # Choices
//
// The Table's mutex is the only lock: what relates volumes, lanes and slots of nodes, needs one
// moment for all of them, and no method does more than bookkeeping under it.
//
// A claim is kept until its object is gone, if a worker had it: the secrets of its publish are needed
// when the Secret is deleted first. VolumeAttachments at rest that were attached before a restart
// have no claim.
//
// There is no index of volume handles. Entries find each other at their volume; only for an unowned
// publication are all VolumeAttachments of the driver looked through.
//
// A publication that a claim owns is never given up by itself: it is left unowned first, and what is
// unowned is given up.
package volume
