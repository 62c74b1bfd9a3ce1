package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// stuckEvery bounds how late a VolumeAttachment is found to be stuck.
const stuckEvery = time.Minute

// stuckError is what the status of a VolumeAttachment says when it has been without
// success for too long. It wraps the last error.
type stuckError struct {
	op    attach.Operation
	since time.Time
	tries int
	last  error
}

func (e stuckError) Error() string {
	return fmt.Sprintf("stuck: %s wanted since %s, tried %d times, the last error: %v", e.op, e.since.UTC().Format(time.RFC3339), e.tries, e.last)
}

func (e stuckError) Unwrap() error { return e.last }

// wantedSince returns when an operation was asked for, as the API server noted it,
// so that a restart of the hub does not begin to count anew.
func wantedSince(va *storagev1.VolumeAttachment, op attach.Operation) time.Time {
	if op == attach.Detaching && va.DeletionTimestamp != nil {
		return va.DeletionTimestamp.Time
	}
	return va.CreationTimestamp.Time
}

// watchStuck finds the VolumeAttachments that have been without success for too long
// and of which no error says so, because the driver cannot even be called.
func (d *driver) watchStuck(ctx context.Context) {
	for d.pause(ctx, func(s registry.Settings) time.Duration { return min(s.StuckAfter, stuckEvery) }) {
		for _, name := range d.queue.Unstuck() {
			d.checkStuck(ctx, name)
		}
	}
}

// checkStuck reports a VolumeAttachment once. Work on it goes on.
func (d *driver) checkStuck(ctx context.Context, name string) {
	va := d.overlay.attachment(name)
	op, _ := d.wanted(name)
	if va == nil || op == attach.Idle {
		return
	}
	since := wantedSince(va, op)
	if time.Since(since) < d.settings().StuckAfter {
		return
	}
	d.queue.MarkStuck(name)
	klog.FromContext(ctx).Info("VolumeAttachment is stuck", "volumeAttachment", name, "operation", op, "since", since)
	if status := va.Status; status.AttachError != nil && op == attach.Attaching || status.DetachError != nil && op == attach.Detaching {
		return // it says what is wrong; the next try adds since when
	}
	why := errors.New("waiting for a worker: all calls that the driver may have in flight take long")
	if s := d.session.Load(); s == nil || isDone(s) {
		why = fmt.Errorf("%w: %s", errAway, d.condition.get().Reason)
	}
	if err := d.attacher().SaveError(ctx, va, op, stuckError{op: op, since: since, last: why}); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot write the error into the VolumeAttachment", "cause", why, "err", err)
	}
}

func isDone(s Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
