package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// stuckEvery bounds how late a VolumeAttachment is found to be stuck.
const stuckEvery = time.Minute

// stuckError is the error in the status of a VolumeAttachment whose operation has had no success for too long.
// It wraps the last error.
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

// wantedSince returns when an operation was asked for, by the times in the object, which a restart of the hub
// does not change. It is zero for the repair of an attached volume, which no client has asked for.
func wantedSince(va *storagev1.VolumeAttachment, op attach.Operation) time.Time {
	switch {
	case op == attach.Detaching && va.DeletionTimestamp != nil:
		return va.DeletionTimestamp.Time
	case op == attach.Attaching && !va.Status.Attached:
		return va.CreationTimestamp.Time
	}
	return time.Time{}
}

// stuckWatch finds the VolumeAttachments of a driver whose operation has had no success for too long, also while
// the driver cannot be called.
type stuckWatch struct {
	leader *leader
	known  map[types.UID]attach.Operation // those that were stuck at the last look
}

// stuckCheck returns the periodic search for stuck VolumeAttachments.
func (l *leader) stuckCheck() *periodic {
	w := &stuckWatch{leader: l}
	return &periodic{pause: func(s registry.Settings) time.Duration { return min(s.StuckAfter, stuckEvery) }, run: w.look}
}

func (w *stuckWatch) look(ctx context.Context) {
	l := w.leader
	stuck := map[types.UID]attach.Operation{}
	var fresh []string
	for _, va := range l.cluster.AttachmentsOfDriver(l.name) {
		va = l.overlay.Newest(va)
		op, _ := l.wantedOf(l.decider(), va)
		if since := wantedSince(va, op); since.IsZero() || time.Since(since) < l.settings().StuckAfter {
			continue
		}
		stuck[va.UID] = op
		if w.known[va.UID] != op {
			fresh = append(fresh, va.Name)
			l.events.stuck(va, op, fmt.Sprintf("%s wanted since %s without success, retries go on", op, wantedSince(va, op).UTC().Format(time.RFC3339)))
			l.explainStuck(ctx, va, op)
		}
	}
	if len(fresh) > 0 {
		klog.FromContext(ctx).Info("VolumeAttachments are stuck", "new", len(fresh), "all", len(stuck), "example", fresh[0])
	}
	w.known = stuck
	counts := map[status.Operation]int{}
	for _, op := range stuck {
		counts[operationOf(op)]++
	}
	l.counters.setStuck(counts)
}

// whyStuck returns the reason why an operation has had no success: the driver cannot be called, the last error,
// or the wait of its entry.
func (l *leader) whyStuck(name string) error {
	if s := l.get(); !s.up {
		return fmt.Errorf("%w: %s", errDisconnected, s.connectionReason)
	}
	e, ok := l.table.Look(volume.ClaimKey(name))
	switch wait := waitOf(e.Wait, l.cluster); {
	case e.Error != "":
		return errors.New(e.Error)
	case ok && wait.Kind != status.WaitForWorker:
		return fmt.Errorf("waiting for %s", wait)
	case ok && e.State == volume.Running:
		return errors.New("the call to the driver has not returned yet")
	}
	return errors.New("waiting for a worker: all calls that the driver may have in flight take long")
}

// explainStuck writes into the status of a VolumeAttachment why it is stuck, unless the status has an error.
// While the driver cannot be called no try fails, so no other error would explain it.
func (l *leader) explainStuck(ctx context.Context, va *storagev1.VolumeAttachment, op attach.Operation) {
	if op == attach.Attaching && va.Status.AttachError != nil || op == attach.Detaching && va.Status.DetachError != nil {
		return
	}
	why := l.whyStuck(va.Name)
	if err := l.writer().SaveError(ctx, va, op, stuckError{op: op, since: wantedSince(va, op), last: why}); err != nil {
		l.volumeLogger(va).V(2).Info("Failed to write the error into the VolumeAttachment", "cause", why, "err", err)
	}
}
