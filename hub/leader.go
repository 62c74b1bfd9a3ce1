package hub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// leader works for one CSI driver during one term of its lease. It shares nothing with other drivers except the
// cluster's caches, which it only reads.
//
// Its life: open its route, and add items for all work that the caches show once the driver can be called;
// work while the driver can be called; drain.
type leader struct {
	*manager
	work *reconcile.Worker
	term *lease.Term

	gate    sync.Mutex   // held while the queue is opened or shut
	opened  bool         // the queue was open once; guarded by gate
	stopped bool         // the queue does not open any more; guarded by gate
	reacted driverState  // the last one with another connection that connectionChanged has acted on; guarded by gate
	renewed *liveSession // the last session for which connectionChanged has called Backfill; guarded by gate

	stuck map[types.UID]stuckVolume // VolumeAttachments at the last reportOverdue, which alone uses it

	workers sync.WaitGroup
}

// options returns what a Worker needs of the manager.
func (m *manager) options() reconcile.Options {
	return reconcile.Options{
		Memory:     reconcile.Memory{Table: m.table, Queue: m.queue, Overlay: m.overlay},
		Driver:     m.name,
		Cluster:    m.cluster,
		Kube:       m.hub.options.Kube,
		Events:     m.hub.options.Events,
		Metrics:    m.metrics,
		Logger:     m.logger,
		WriteLimit: m.hub.options.LeaseDuration / 3,
		Redactor:   m.redactor,
		Settings:   m.settings,
		Decider:    m.decider,
		Session: func() reconcile.Session {
			if s := m.session(); s != nil {
				return s
			}
			return nil
		},
		IsUp:     func() bool { return m.get().up },
		MayName:  m.mayName,
		Failed:   m.countFailure,
		Conflict: func(w status.ForeignWriter) { m.update(func(s *driverState) { s.foreignWriter = w }) },
		WhyStuck: func(va *storagev1.VolumeAttachment, op attach.Operation, tries int, last error) error {
			return stuckError(va, op, tries, lastError(last))
		},
	}
}

func (m *manager) newLeader(term *lease.Term) *leader {
	return &leader{manager: m, term: term, work: reconcile.New(m.options(), term)}
}

// run works for the driver until ctx ends. Then calls in flight have the grace to end, and run cancels the
// others; when the lease is lost, it cancels all at once. When it returns, all its goroutines have ended. An
// error is a fault of this program in the work for this driver: a panic.
func (l *leader) run(ctx context.Context) error {
	intake, end := context.WithCancelCause(ctx)
	defer end(nil)
	var panicked atomic.Pointer[error]
	fail := func(err error) {
		panicked.CompareAndSwap(nil, &err)
		end(err)
	}
	// Calls outlive the intake: after a cancelled call it is not known whether the volume is attached.
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()

	var loops, watching sync.WaitGroup
	panics.Go(&loops, fail, func() {
		l.queue.Run(intake, func(e *queue.Item) {
			panics.Go(&l.workers, fail, func() { l.work.Work(calls, e) })
		})
	})
	panics.Contain(fail, func() {
		// Also while the driver cannot be called: only this process may know the volume of a VolumeAttachment that
		// vanishes then.
		l.hub.routes.Open(l.name, l.work)
		l.connectionChanged()
		l.attend(intake, end, fail, &loops,
			&periodic{pause: l.work.Drift.Pause, run: l.work.Drift.Check},
			&periodic{pause: func(s registry.Settings) time.Duration { return min(s.StuckAfter, overdueEvery) }, run: l.reportOverdue},
			&periodic{pause: func(registry.Settings) time.Duration { return resyncEvery }, run: func(context.Context) { l.work.Resync() }})
	})
	drained := make(chan struct{})
	panics.Go(&watching, fail, func() { // ctx ends when the lease is lost, which may also happen from now on
		select {
		case <-l.term.Lost():
			cut()
		case <-drained:
		}
	})
	defer watching.Wait()
	defer close(drained)
	// Whatever happens: no goroutine of this term works on beside the next term.
	panics.Contain(fail, func() { l.hub.routes.Close(l.name, l.work) })
	panics.Contain(fail, func() {
		l.shut()
		l.update(func(s *driverState) { s.draining = "calls in flight may end" })
	})
	end(nil)
	defer time.AfterFunc(l.hub.options.Grace, cut).Stop()
	loops.Wait()
	l.workers.Wait()
	panics.Contain(fail, l.table.Close)
	panics.Contain(l.work.CannotDrain, func() { l.work.DetachUnowned(calls) })
	if err := panicked.Load(); err != nil {
		return *err
	}
	return nil
}

// errReleased ends a term because the driver cannot be called from here.
var errReleased = errors.New("the driver cannot be called from here")

// busyPause is how long attend waits for calls in flight before it tries again to release the lease.
const busyPause = time.Second

// attend follows the settings and starts the periodic work, in goroutines of the group, until ctx ends.
//
// If the driver cannot be called from here, other replicas know that, and a replica that can call it gets the
// lease. A csi-attacher on standby announces nothing. So attend releases the lease once, while no call is in
// flight. If nobody takes it, the next term keeps it until giveUpAfter: a driver that comes back is called at once,
// and a driver that comes and goes does not pass the lease around. Then attend releases it for good, as a
// csi-attacher that was not there before may wait for it.
func (l *leader) attend(ctx context.Context, end context.CancelCauseFunc, fail func(error), group *sync.WaitGroup, all ...*periodic) {
	for _, p := range all {
		p.since = time.Now()
	}
	if r, _ := l.get().reach(l.hub.options.LeaseDuration, time.Now()); r < lease.JustAway {
		// Nobody has taken the lease, although it was free for its duration.
		l.update(func(s *driverState) { s.leaseOffered = true })
	}
	var limits registry.Settings // of the last setLimits
	l.await(ctx, func(s driverState) (time.Duration, bool) {
		if s.spec.Settings != limits {
			limits = s.spec.Settings
			l.work.SetLimits(limits)
		}
		r, again := s.reach(l.hub.options.LeaseDuration, time.Now())
		if r == lease.Unreached || r == lease.Away && !s.leaseOffered {
			if l.offerLease() {
				end(errReleased)
				return 0, true
			}
			again = busyPause
		}
		for _, p := range all {
			again = min(again, p.startIfDue(ctx, s.spec.Settings, fail, group))
		}
		return again, false
	})
	<-ctx.Done()
}

// connectionChanged opens the lanes if the driver can be called, and shuts them if not. The capabilities may
// have changed since the last session, so for each session it adds items for all work that the caches show. A term can
// begin while the driver connects, and is then told twice: an attach that has failed meanwhile keeps its backoff.
func (l *leader) connectionChanged() {
	l.gate.Lock()
	defer l.gate.Unlock()
	s := l.get()
	before := l.reacted
	l.reacted = s
	switch {
	case l.stopped || s.up == before.up && s.upSince.Equal(before.upSince) && s.session == before.session:
	case s.up:
		l.hub.routes.Open(l.name, l.work)
		if l.renewed != s.session { // a Probe that succeeds again changes nothing for a volume that the driver has refused
			l.renewed = s.session
			l.work.Backfill()
		}
		if !l.opened {
			info := s.session.Info()
			l.logger.Info("Serving driver", "endpoint", s.spec.Endpoint, "version", info.Version, "attaches", info.Capabilities.PublishUnpublish)
		}
		l.opened = true
		l.queue.Open()
	case l.opened:
		l.queue.Shut()
	}
}

// offerLease stops the queue of a driver that cannot be called, so that the lease can be released. It does
// nothing and returns false if the driver can be called again, or calls are in flight.
func (l *leader) offerLease() bool {
	l.gate.Lock()
	defer l.gate.Unlock()
	if l.get().up || l.queue.IsCalling() {
		return false
	}
	l.stopped = true
	l.update(func(s *driverState) { s.leaseOffered = true })
	l.logger.V(2).Info("Driver is unreachable, releasing its lease")
	return true
}

// shut keeps the queue from opening again.
func (l *leader) shut() {
	l.gate.Lock()
	defer l.gate.Unlock()
	l.stopped = true
}
