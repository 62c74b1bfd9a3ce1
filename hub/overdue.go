package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// resyncEvery is the interval of the search for work that no event has led to.
	resyncEvery = 5 * time.Minute
	// overdueEvery is the longest interval of reportOverdue.
	overdueEvery = time.Minute
	// hangsAfter is the age from which a call counts as hanging.
	hangsAfter = time.Minute
)

// periodic is work that a leader does at intervals. It has no goroutine between two runs: there may be many
// drivers, and most are idle most of the time.
type periodic struct {
	// pause returns the time from the start of the leader to the first run, and from the end of each run to
	// the next.
	pause func(registry.Settings) time.Duration
	run   func(context.Context)

	running atomic.Bool
	since   time.Time // start of the leader, or end of the last run; belongs to a run while it lasts
}

// startIfDue starts the work in a goroutine of the group if it is due. It returns when to ask again.
func (p *periodic) startIfDue(ctx context.Context, s registry.Settings, fail func(error), group *sync.WaitGroup) time.Duration {
	if p.running.Load() {
		return busyPause
	}
	if left := p.pause(s) - time.Since(p.since); left > 0 {
		return left
	}
	p.running.Store(true)
	panics.Go(group, fail, func() {
		p.run(ctx)
		p.since = time.Now()
		p.running.Store(false)
	})
	return busyPause
}

// stuckVolume is what was reported of a VolumeAttachment whose operation has had no success for too long.
type stuckVolume struct {
	op    attach.Operation
	hangs bool // its status has named a call in flight
	down  bool // its status has said that the driver is not connected
}

// reportOverdue reports what has had no success for too long, also while the driver cannot be called: calls that hang, of which
// nothing else is logged until their timeout, which may be hours, and VolumeAttachments that are stuck.
func (l *leader) reportOverdue(ctx context.Context) {
	l.logHanging(time.Now())
	stuck := map[types.UID]stuckVolume{}
	var fresh []string
	for _, va := range l.overlay.AttachmentsOfDriver(l.name) {
		op, _ := l.table.Required(l.decider(), va)
		now := time.Now()
		if !op.IsStuck(va, l.settings().StuckAfter, now) {
			continue
		}
		v := l.stuck[va.UID]
		isNew := v.op != op
		if isNew {
			v = stuckVolume{op: op}
			fresh = append(fresh, va.Name)
			l.work.Warn(va, reconcile.StuckReason(op), fmt.Sprintf("%s requested at %s without success, retries continue", op, op.Since(va).UTC().Format(time.RFC3339)))
		}
		item, ok := l.queue.Look(queue.ClaimKey(va.Name))
		if !ok {
			item.Wait.Kind = queue.WaitNothing
		}
		// While a call hangs or the driver is away, no try fails: an older error in the status is not the reason. Each of the two is
		// written once. Otherwise the error there is the last one.
		calling, state := !item.Call.Since.IsZero(), l.get()
		down := !calling && !state.up
		if hangs(item.Call.Since, now) && !v.hangs || down && !v.down || isNew && op.LastError(va) == nil {
			v.hangs, v.down = v.hangs || calling, v.down || down
			err := stuckError(va, op, item.Tries, whyStuck(state, item, va.Spec.NodeName))
			if failed := l.work.Writer().SaveError(ctx, va, op, err); failed != nil {
				l.work.VolumeLogger(va).V(2).Info("Failed to write the error into the VolumeAttachment", "cause", err, "err", failed)
			}
		}
		stuck[va.UID] = v
	}
	if len(fresh) > 0 {
		klog.FromContext(ctx).Info("VolumeAttachments are stuck", "new", len(fresh), "all", len(stuck), "example", fresh[0])
	}
	l.stuck = stuck
}

// whyStuck returns why an item makes no progress: its call in flight, the connection, the last error, or what it waits for.
func whyStuck(s driverState, item queue.Progress, node string) error {
	wait := view.WaitOf(item.Wait, node)
	text := strings.Replace(wait.String(), "waits", "waiting", 1)
	switch {
	case !item.Call.Since.IsZero():
		return fmt.Errorf("%s unanswered since %s", item.Call.Method, item.Call.Since.UTC().Format(time.RFC3339))
	case !s.up:
		return lastError(fmt.Errorf("%w: %s", reconcile.ErrDisconnected, s.connectionReason))
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
	failed := ""
	switch tries {
	case 0:
	case 1:
		failed = "1 failed try, "
	default:
		failed = fmt.Sprintf("%d failed tries, ", tries)
	}
	return fmt.Errorf("%s%s requested at %s, %s%w", diagnosis.StuckPrefix, op, op.Since(va).UTC().Format(time.RFC3339), failed, why)
}

// logHanging logs the oldest call if it hangs, or that the driver answers no call although each call ends at its
// timeout before it hangs.
func (l *leader) logHanging(now time.Time) {
	var oldest queue.Flight
	calls := l.queue.Calls()
	for _, call := range calls {
		if oldest.Since.IsZero() || call.Since.Before(oldest.Since) {
			oldest = call
		}
	}
	unanswered := l.session().unansweredSince(l.queue.Has)
	switch {
	case hangs(oldest.Since, now):
		logger := l.logger.WithValues("volumeAttachment", oldest.VolumeAttachment)
		if va := l.overlay.Attachment(oldest.VolumeAttachment); va != nil {
			logger = l.work.VolumeLogger(va)
		}
		logger.Info(oldest.Method+" unanswered", "for", now.Sub(oldest.Since).Round(time.Second), "callsInFlight", len(calls))
	case hangs(unanswered, now):
		l.logger.Info("Driver answers no call", "for", now.Sub(unanswered).Round(time.Second), "callsInFlight", len(calls))
	}
}

// hangs reports whether a call hangs that began at a time, zero if there is none.
func hangs(since, now time.Time) bool { return !since.IsZero() && now.Sub(since) >= hangsAfter }
