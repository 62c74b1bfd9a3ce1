package reconcile

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
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
)

// hangsAfter is the age from which a call counts as hanging.
const hangsAfter = time.Minute

// stuckVolume is what was reported of a VolumeAttachment whose operation has had no success for too long.
type stuckVolume struct {
	op    attach.Operation
	hangs bool // its status has named a call in flight
	down  bool // its status has said that the driver is not connected
}

// ReportOverdue reports the VolumeAttachments that are stuck, also while the driver cannot be called. Their status says too which
// call hangs: its timeout, at which it is logged, may be hours.
func (w *Worker) ReportOverdue(ctx context.Context) {
	stuck := map[types.UID]stuckVolume{}
	var fresh []string
	for _, va := range w.Overlay.AttachmentsOfDriver(w.Driver) {
		op, _ := w.Table.Required(w.Decider(), va)
		now := time.Now()
		if !op.IsStuck(va, w.Settings().StuckAfter, now) {
			continue
		}
		v := w.stuck[va.UID]
		isNew := v.op != op
		if isNew {
			v = stuckVolume{op: op}
			fresh = append(fresh, va.Name)
			w.Warn(va, titleOf(op)+stuckEvent, fmt.Sprintf("%s requested at %s without success, retries continue", op, op.Since(va).UTC().Format(time.RFC3339)))
		}
		item, _ := w.Queue.Look(queue.AttachmentKey(va.Name))
		// While a call hangs or the driver cannot be reached, no try fails: an older error in the status is not the reason. Each of the two is
		// written once. Otherwise the error there is the last one.
		calling, away := !item.Call.Since.IsZero(), w.Away()
		down := !calling && away != nil
		if hangs(item.Call.Since, now) && !v.hangs || down && !v.down || isNew && op.LastError(va) == nil {
			v.hangs, v.down = v.hangs || calling, v.down || down
			w.saveError(ctx, va, op, stuckError(va, op, item.Tries, whyStuck(away, item, va.Spec.NodeName)))
		}
		stuck[va.UID] = v
	}
	if len(fresh) > 0 {
		klog.FromContext(ctx).Error(nil, "VolumeAttachments are stuck", "new", len(fresh), "all", len(stuck), "example", fresh[0])
	}
	w.stuck = stuck
}

// whyStuck returns why an item makes no progress: its call in flight, the connection, the last error, or what it waits for.
func whyStuck(away error, item queue.Progress, node string) error {
	wait := view.WaitOf(item.Wait, node)
	text := strings.Replace(wait.String(), "waits", "waiting", 1)
	switch {
	case !item.Call.Since.IsZero():
		return fmt.Errorf("%s unanswered since %s", item.Call.Method, item.Call.Since.UTC().Format(time.RFC3339))
	case away != nil:
		return lastError(away)
	case item.Error != "":
		return lastError(errors.New(item.Error))
	case item.State == queue.Running:
		text = "waiting for the Kubernetes API"
	case wait.Kind == status.WaitForWorker:
		text += ": all that it may have are busy"
	case text == "":
		text = "about to be tried"
	}
	return errors.New(text)
}

// lastError returns the reason of a stuckError whose last try has failed.
func lastError(err error) error { return fmt.Errorf(diagnosis.LastErrorPrefix+"%w", err) }

// stuckError returns the error for the status of a VolumeAttachment whose operation has had no success for too long, after so many
// tries that have failed.
func stuckError(va *storagev1.VolumeAttachment, op attach.Operation, tries int, why error) error {
	failed := fmt.Sprintf("%d failed tries, ", tries)
	if tries < 2 {
		failed = []string{"", "1 failed try, "}[tries]
	}
	return fmt.Errorf("%s%s requested at %s, %s%w", diagnosis.StuckPrefix, op, op.Since(va).UTC().Format(time.RFC3339), failed, why)
}

// hangs reports whether a call hangs that began at a time, zero if there is none.
func hangs(since, now time.Time) bool { return !since.IsZero() && now.Sub(since) >= hangsAfter }
