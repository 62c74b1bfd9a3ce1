package reconcile

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

// A VolumeAttachment that is deleted right after its creation may vanish in spite of its finalizer
// (kubernetes/kubernetes issue 124749). Only the process that has attached the volume knows of it: after the
// next leader has taken over, the volume would stay attached for ever.

// drainWorkers bounds the reads of VolumeAttachments that may have vanished, and then the detaches, that run at once.
const drainWorkers = 8

// DetachUnowned detaches the unowned publications before another process may work for the driver. All other
// work for the driver has ended. It keeps publications that it cannot detach for the next term. It blocks
// until the detaches have ended, or ctx ends.
func (l *Worker) DetachUnowned(ctx context.Context) {
	if l.Away() != nil || ctx.Err() != nil || !l.Decider().Capabilities.PublishUnpublish {
		return
	}
	l.findVanished(ctx)
	l.Table.Confirm()
	byVolume := map[string][]volume.Unowned{}
	for _, u := range l.Table.UnownedAll() {
		byVolume[u.Target.VolumeHandle] = append(byVolume[u.Target.VolumeHandle], u)
	}
	parallel, r := l.Settings().ParallelMultiNode, l.newRound()
	var tasks []func()
	for _, all := range byVolume {
		oneByOne := len(all) // publications that one task detaches
		if parallel && !slices.ContainsFunc(all, func(u volume.Unowned) bool { return !l.isSurelyShared(u.FormerOwner, u.Record) }) {
			oneByOne = 1 // calls for a multi-node volume may run side by side
		}
		for some := range slices.Chunk(all, oneByOne) {
			tasks = append(tasks, func() {
				for _, u := range some {
					err := l.detachUnowned(ctx, r, u)
					for isFenced(err) && ctx.Err() == nil {
						sleep(ctx, fencePause)
						err = l.detachUnowned(ctx, r, u)
					}
					if err != nil {
						l.logLine(l.UnownedLogger(u), true, "VolumeAttachment is gone and its volume may stay attached: not detached", "err", err)
					}
				}
			})
		}
	}
	l.sideBySide(tasks)
}

// findVanished ends the volume.Attachments of VolumeAttachments that have vanished. It reads a VolumeAttachment again if its
// status does not say "attached" yet: the watch may not have reported its deletion.
func (l *Worker) findVanished(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	l.findMissing()
	var questions []func()
	for _, c := range l.Table.Attachments() {
		if va := l.Overlay.Attachment(c.Name); va != nil && c.MayBePublished() && !va.Status.Attached {
			questions = append(questions, func() {
				if va, err := l.read(ctx, c.Name); err == nil && (va == nil || va.UID != c.UID) {
					l.Table.ReadGone(c.Identity, false)
				}
			})
		}
	}
	l.sideBySide(questions)
}

// sideBySide calls all, a few at a time, and returns when all have returned.
func (l *Worker) sideBySide(all []func()) {
	var running errgroup.Group
	running.SetLimit(drainWorkers)
	for _, f := range all {
		running.Go(func() error { panics.Contain(l.CannotDrain, f); return nil })
	}
	_ = running.Wait() // none returns an error
}

// CannotDrain logs a panic: the lease is released nevertheless.
func (l *Worker) CannotDrain(err error) { l.Logger.Error(err, "Failed to drain the driver") }
