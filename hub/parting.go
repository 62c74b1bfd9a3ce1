package hub

import (
	"context"
	"strings"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// A VolumeAttachment that is deleted right after it was made may vanish with its finalizer
// (kubernetes/kubernetes issue 124749). That its volume was attached all the same is known to
// nobody but the process that did it: whoever comes next would leave it there for ever.

const (
	// partingReads bounds how long it is asked which VolumeAttachments there are.
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
	byVolume := map[string][]workKey{} // one call at a time for each
	for _, key := range d.ledger.takeOrphans() {
		_, handle, _ := strings.Cut(key.name, "\x00")
		byVolume[handle] = append(byVolume[handle], key)
	}
	var volumes []func()
	for _, keys := range byVolume {
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
		if r == nil || !r.progress.MayBeAttached() {
			continue
		}
		if va := d.overlay.attachment(name); va == nil || va.UID != r.uid {
			d.ledger.close(name)
		} else if !va.Status.Attached {
			questions = append(questions, func() {
				if va, err := d.ask(ctx, name); err == nil && (va == nil || va.UID != r.uid) {
					d.ledger.close(name)
				}
			})
		}
	}
	d.sideBySide(questions)
}

// ask returns a VolumeAttachment as the API server has it now, nil if there is none. While
// the API server does not answer it goes on asking until ctx ends: nobody can later.
func (d *driver) ask(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	for {
		va, err := d.cluster.attachment(ctx, name)
		if err == nil || ctx.Err() != nil {
			return va, err
		}
		sleep(ctx, fencePause)
	}
}

// bury detaches an orphan, unless a VolumeAttachment wants its volume where it is.
func (d *driver) bury(ctx context.Context, key workKey) {
	r := d.ledger.orphan(key)
	if r == nil {
		return
	}
	logger := klog.FromContext(ctx).WithValues("volumeHandle", r.progress.Target.VolumeHandle, "node", r.node)
	if va := d.wantedThere(r); va != nil {
		guarded, err := d.guarded(ctx, va)
		if err != nil {
			logger.Error(err, "A volume whose VolumeAttachment is gone may stay attached, it is not known whether another one has it")
			return
		}
		if guarded {
			d.ledger.buried(key)
			return
		}
	}
	err := d.attacher().Unpublish(ctx, &r.progress)
	for isFenced(err) && ctx.Err() == nil {
		sleep(ctx, fencePause)
		err = d.attacher().Unpublish(ctx, &r.progress)
	}
	if err != nil {
		logger.Error(err, "A volume whose VolumeAttachment is gone may stay attached")
		return
	}
	logger.Info("Detached a volume whose VolumeAttachment is gone")
	d.ledger.buried(key)
}

// guarded says whether a VolumeAttachment exists and has the finalizer, so that its deletion
// detaches. The watch may not have told of its end.
func (d *driver) guarded(ctx context.Context, va *storagev1.VolumeAttachment) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, partingReads)
	defer cancel()
	now, err := d.ask(ctx, va.Name)
	return now != nil && now.UID == va.UID && attach.HasFinalizer(now.Finalizers, d.finalizer), err
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
