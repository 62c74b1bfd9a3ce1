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

// DetachDangling detaches the dangling publications before another process may work for the driver. All other
// work for the driver has ended. It keeps publications that it cannot detach for the next term. It blocks
// until the detaches have ended, or ctx ends.
func (w *Worker) DetachDangling(ctx context.Context) {
	if w.Away() != nil || ctx.Err() != nil || !w.Decider().Capabilities.PublishUnpublish {
		return
	}
	w.findVanished(ctx)
	w.Table.Confirm()
	byVolume := map[string][]volume.Dangling{}
	for _, u := range w.Table.AllDangling() {
		byVolume[u.Target.VolumeHandle] = append(byVolume[u.Target.VolumeHandle], u)
	}
	parallel, r := w.Settings().ParallelMultiNode, w.newRound()
	var tasks []func()
	for _, all := range byVolume {
		oneByOne := len(all) // publications that one task detaches
		if parallel && !slices.ContainsFunc(all, func(u volume.Dangling) bool { return !w.isSurelyShared(u.FormerOwner, u.Record) }) {
			oneByOne = 1 // calls for a multi-node volume may run side by side
		}
		for some := range slices.Chunk(all, oneByOne) {
			tasks = append(tasks, func() {
				for _, u := range some {
					var err error
					for err = w.detachDangling(ctx, r, u); isFenced(err) && ctx.Err() == nil; err = w.detachDangling(ctx, r, u) {
						Sleep(ctx, fencePause)
					}
					if err != nil {
						w.logError(w.DanglingLogger(u), true, err, "VolumeAttachment is gone and its volume may stay attached: not detached")
					}
				}
			})
		}
	}
	w.sideBySide(tasks)
}

// findVanished ends the volume.Attachments of VolumeAttachments that have vanished. It reads a VolumeAttachment again if its
// status does not say "attached" yet: the watch may not have reported its deletion.
func (w *Worker) findVanished(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	w.findMissing()
	var questions []func()
	for _, c := range w.Table.Attachments() {
		if va := w.Overlay.Attachment(c.Name); va != nil && c.MayBePublished() && !va.Status.Attached {
			questions = append(questions, func() {
				if va, err := w.read(ctx, c.Name); err == nil && (va == nil || va.UID != c.UID) {
					w.Table.Missing(c.Name, c.UID)
				}
			})
		}
	}
	w.sideBySide(questions)
}

// sideBySide calls all, a few at a time, and returns when all have returned.
func (w *Worker) sideBySide(all []func()) {
	var running errgroup.Group
	running.SetLimit(drainWorkers)
	for _, f := range all {
		running.Go(func() error { panics.Contain(w.CannotDrain, f); return nil })
	}
	_ = running.Wait() // none returns an error
}

// CannotDrain logs a panic: the lease is released nevertheless.
func (w *Worker) CannotDrain(err error) { w.Logger.Error(err, "Failed to drain the driver") }
