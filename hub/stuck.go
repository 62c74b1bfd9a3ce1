package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// stuckEvery bounds how late a VolumeAttachment is found to be stuck.
const stuckEvery = time.Minute

// stuckError is the error in the status of a VolumeAttachment whose operation has had no success for too long.
type stuckError struct {
	op    attach.Operation
	since time.Time
	tries int    // that have failed
	now   string // what it waits for; empty if last says why
	last  error  // wrapped; nil if now says why
}

func (e stuckError) Error() string {
	text := fmt.Sprintf("%s%s requested at %s, ", diagnosis.StuckPrefix, e.op, e.since.UTC().Format(time.RFC3339))
	switch e.tries {
	case 0:
	case 1:
		text += "1 failed try, "
	default:
		text += fmt.Sprintf("%d failed tries, ", e.tries)
	}
	if e.last == nil {
		return text + e.now
	}
	return text + diagnosis.LastErrorPrefix + e.last.Error()
}

func (e stuckError) Unwrap() error { return e.last }

// stuckWatch finds the VolumeAttachments of a driver whose operation has had no success for too long, also while
// the driver cannot be called.
type stuckWatch struct {
	leader *leader
	known  map[types.UID]stuckVolume // those that were stuck at the last look
}

// stuckVolume is what was reported of a VolumeAttachment that is stuck.
type stuckVolume struct {
	op    attach.Operation
	hangs bool // its status has named a call in flight
	down  bool // its status has said that the driver is not connected
}

// stuckCheck returns the periodic search for stuck VolumeAttachments.
func (l *leader) stuckCheck() *periodic {
	w := &stuckWatch{leader: l}
	return &periodic{pause: func(s registry.Settings) time.Duration { return min(s.StuckAfter, stuckEvery) }, run: w.look}
}

func (w *stuckWatch) look(ctx context.Context) {
	l := w.leader
	stuck := map[types.UID]stuckVolume{}
	var fresh []string
	for _, va := range l.overlay.AttachmentsOfDriver(l.name) {
		op, _ := l.table.Required(l.decider(), va)
		since, now := op.Since(va), time.Now()
		if !op.IsStuck(va, l.settings().StuckAfter, now) {
			continue
		}
		v := w.known[va.UID]
		isNew := v.op != op
		if isNew {
			v = stuckVolume{op: op}
			fresh = append(fresh, va.Name)
			l.work.Warn(va, reconcile.StuckReason(op), fmt.Sprintf("%s requested at %s without success, retries continue", op, since.UTC().Format(time.RFC3339)))
		}
		progress, _ := l.queue.Look(queue.ClaimKey(va.Name))
		call := status.Call(progress.Call)
		// While a call hangs or the driver is away, an older error in the status is not the reason: each is written
		// once. Otherwise the error there is the last one.
		down := call.Since.IsZero() && !l.get().up
		if hangs(call.Since, now) && !v.hangs || down && !v.down || isNew && op.LastError(va) == nil {
			v.hangs, v.down = v.hangs || !call.Since.IsZero(), v.down || down
			l.explainStuck(ctx, va, op, call)
		}
		stuck[va.UID] = v
	}
	if len(fresh) > 0 {
		klog.FromContext(ctx).Info("VolumeAttachments are stuck", "new", len(fresh), "all", len(stuck), "example", fresh[0])
	}
	w.known = stuck
}

// explainStuck writes into the status of a VolumeAttachment why it is stuck: its call in flight, the connection, what its item waits
// for, or the last error. While a call hangs and while the driver cannot be called no try fails, so no other error would explain it.
func (l *leader) explainStuck(ctx context.Context, va *storagev1.VolumeAttachment, op attach.Operation, call status.Call) {
	item, ok := l.queue.Look(queue.ClaimKey(va.Name))
	e := stuckError{op: op, since: op.Since(va), tries: item.Tries}
	wait := view.WaitOf(item.Wait, va.Spec.NodeName)
	switch s := l.get(); {
	case !call.Since.IsZero():
		e.now = fmt.Sprintf("%s unanswered since %s", call.Method, call.Since.UTC().Format(time.RFC3339))
	case !s.up:
		e.last = fmt.Errorf("%w: %s", reconcile.ErrDisconnected, s.connectionReason)
	case item.Error != "":
		e.last = errors.New(item.Error)
	case ok && item.State == queue.Running:
		e.now = "waiting for the Kubernetes API"
	case ok && wait.Kind == status.WaitForWorker:
		e.now = "waiting" + strings.TrimPrefix(wait.String(), "waits") + ": all that it may have are busy"
	case ok && wait.Kind != "":
		e.now = "waiting" + strings.TrimPrefix(wait.String(), "waits")
	default:
		e.now = "about to be tried"
	}
	if err := l.work.Writer().SaveError(ctx, va, op, e); err != nil {
		l.work.VolumeLogger(va).V(2).Info("Failed to write the error into the VolumeAttachment", "cause", e, "err", err)
	}
}
