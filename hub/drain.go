package hub

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// A VolumeAttachment that is deleted right after it was made may vanish with its finalizer
// (kubernetes/kubernetes issue 124749). That its volume was attached all the same is known to
// nobody but the process that did it: whoever comes next would leave it there for ever.

const (
	// drainReads bounds how long it is asked which VolumeAttachments have vanished.
	drainReads = 2 * time.Second
	// drainWorkers is how many of these questions and detaches there are at once.
	drainWorkers = 8
)

// detachUnowned detaches what is unowned before somebody else may work for the driver. Nothing else is
// done for the driver any more. What cannot be detached now is kept for the next term. It blocks
// until that has ended; ctx cuts it off.
func (d *driver) detachUnowned(ctx context.Context) {
	if up, _, _ := d.connection.isUp(); !up || ctx.Err() != nil || !d.decider().Capabilities.PublishUnpublish {
		return
	}
	d.findVanished(ctx)
	d.table.Confirm()
	byVolume := map[string][]volume.Unowned{} // one call at a time for each, unless it may be on several nodes
	for _, u := range d.table.UnownedAll() {
		byVolume[u.Target.VolumeHandle] = append(byVolume[u.Target.VolumeHandle], u)
	}
	parallel := d.desired.settings().ParallelMultiNode
	var tasks []func()
	for _, all := range byVolume {
		var alone []volume.Unowned
		for _, u := range all {
			if parallel && d.isLeftShared(u.FormerOwner, u.Record) {
				continue
			}
			alone = append(alone, u)
		}
		if len(alone) == 0 {
			for _, u := range all {
				tasks = append(tasks, func() { d.detachNow(ctx, u) })
			}
			continue
		}
		tasks = append(tasks, func() {
			for _, u := range all {
				d.detachNow(ctx, u)
			}
		})
	}
	d.sideBySide(tasks)
}

// findVanished ends the claims of VolumeAttachments that have vanished. Those of which the status does
// not say yet that they are attached are asked for: the watch may not have told of their end.
func (d *driver) findVanished(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainReads)
	defer cancel()
	var questions []func()
	for _, c := range d.table.Claims() {
		va := d.overlay.Attachment(c.Name)
		if va == nil || va.UID != c.UID {
			d.table.ReadGone(c.Identity, false)
		} else if c.MayBePublished && !va.Status.Attached {
			questions = append(questions, func() {
				if va, err := d.read(ctx, c.Name); err == nil && (va == nil || va.UID != c.UID) {
					d.table.ReadGone(c.Identity, false)
				}
			})
		}
	}
	d.sideBySide(questions)
}

// detachNow detaches an unowned publication, unless a VolumeAttachment owns it. One that only wants it
// there will have it attached again.
func (d *driver) detachNow(ctx context.Context, u volume.Unowned) {
	logger := klog.FromContext(ctx).WithValues("volumeHandle", u.Target.VolumeHandle, "node", u.FormerOwner.Node)
	switch owner, err := d.owners(ctx, u.FormerOwner, u.Target); owner {
	case volume.Owned:
		d.table.ResolveOwned(u)
		return
	case volume.Unclear:
		logger.Info("A volume whose VolumeAttachment is gone may stay attached, as it cannot be told whether another one has it", "err", err)
		return
	}
	err := d.unpublish(ctx, u.Publication, u.Target, nil)
	for isFenced(err) && ctx.Err() == nil {
		sleep(ctx, fencePause)
		err = d.unpublish(ctx, u.Publication, u.Target, nil)
	}
	if err != nil {
		logger.Error(err, "A volume whose VolumeAttachment is gone may stay attached")
		return
	}
	logger.Info("Detached a volume whose VolumeAttachment is gone")
	d.table.Resolve(u.Target)
}

// sideBySide calls all, a few at a time, and returns when all have returned.
func (d *driver) sideBySide(all []func()) {
	var running sync.WaitGroup
	free := make(chan struct{}, drainWorkers)
	for _, f := range all {
		free <- struct{}{}
		goSafely(&running, d.cannotDrain, func() {
			defer func() { <-free }()
			f()
		})
	}
	running.Wait()
}

// cannotDrain takes a panic: the driver is let go of all the same.
func (d *driver) cannotDrain(err error) { d.logger.Error(err, "Letting go of the driver went wrong") }
