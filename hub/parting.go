package hub

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// A VolumeAttachment that is deleted right after it was made may vanish with its finalizer
// (kubernetes/kubernetes issue 124749). That its volume was attached all the same is known to
// nobody but the process that did it: whoever comes next would leave it there for ever.

const (
	// partingReads bounds how long it is asked which VolumeAttachments have vanished.
	partingReads = 2 * time.Second
	// partingWorkers is how many of these questions and detaches there are at once.
	partingWorkers = 8
)

// part detaches what vanished VolumeAttachments have left attached, before somebody else may
// work for the driver. Nothing else is done for the driver any more. What cannot be detached
// now is kept for the next term. It blocks until that has ended; ctx cuts it off.
func (d *driver) part(ctx context.Context) {
	if up, _, _ := d.connection.isUp(); !up || ctx.Err() != nil || !d.decider().Capabilities.PublishUnpublish {
		return
	}
	d.findVanished(ctx)
	byVolume := map[string][]workKey{} // one call at a time for each, unless it may be on several nodes
	for _, key := range d.ledger.takeOrphans() {
		_, handle, _ := strings.Cut(key.name, "\x00")
		byVolume[handle] = append(byVolume[handle], key)
	}
	var volumes []func()
	for _, keys := range byVolume {
		if d.sideBySideOnNodes(keys) {
			for _, key := range keys {
				volumes = append(volumes, func() { d.bury(ctx, key) })
			}
			continue
		}
		volumes = append(volumes, func() {
			for _, key := range keys {
				d.bury(ctx, key)
			}
		})
	}
	d.sideBySide(volumes)
}

// findVanished makes orphans of what vanished VolumeAttachments have left attached. Those
// of which the status does not say yet that they are attached are asked for: the watch
// may not have told of their end.
func (d *driver) findVanished(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, partingReads)
	defer cancel()
	var questions []func()
	for _, name := range d.ledger.names() {
		r := d.ledger.get(name)
		if r == nil {
			continue
		}
		va := d.overlay.Attachment(name)
		if va == nil || va.UID != r.uid {
			d.ledger.close(name)
			d.ledger.found(name)
		} else if r.progress.MayBeAttached() && !va.Status.Attached {
			questions = append(questions, func() {
				if va, err := d.ask(ctx, name); err == nil && (va == nil || va.UID != r.uid) {
					d.ledger.close(name)
					d.ledger.found(name)
				}
			})
		}
	}
	d.sideBySide(questions)
}

// bury detaches an orphan, unless a VolumeAttachment has its volume where it is. One that
// only wants it there will have it attached again.
func (d *driver) bury(ctx context.Context, key workKey) {
	r := d.ledger.orphan(key)
	if r == nil {
		return
	}
	logger := klog.FromContext(ctx).WithValues("volumeHandle", r.progress.Target.VolumeHandle, "node", r.node)
	switch heir, err := d.heir(ctx, r); heir {
	case heirFound:
		d.ledger.buried(key, r)
		return
	case heirUnclear:
		logger.Info("A volume whose VolumeAttachment is gone may stay attached, as it cannot be told whether another one has it", "err", err)
		return
	}
	err := d.attacher().UnpublishKnown(ctx, &r.progress)
	for isFenced(err) && ctx.Err() == nil {
		sleep(ctx, fencePause)
		err = d.attacher().UnpublishKnown(ctx, &r.progress)
	}
	if err != nil {
		logger.Error(err, "A volume whose VolumeAttachment is gone may stay attached")
		return
	}
	logger.Info("Detached a volume whose VolumeAttachment is gone")
	d.ledger.buried(key, r)
}

// sideBySide calls all, a few at a time, and returns when all have returned.
func (d *driver) sideBySide(all []func()) {
	var running sync.WaitGroup
	free := make(chan struct{}, partingWorkers)
	for _, f := range all {
		free <- struct{}{}
		goSafely(&running, d.cannotPart, func() {
			defer func() { <-free }()
			f()
		})
	}
	running.Wait()
}

// cannotPart takes a panic: the driver is let go of all the same.
func (d *driver) cannotPart(err error) { d.logger.Error(err, "Letting go of the driver went wrong") }
