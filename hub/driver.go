package hub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// driver works for one CSI driver for as long as this process holds its lease. All that
// it has is its own but the cluster's caches, which it only reads.
//
// Its life: open its route and take what the index has, once the driver can be called;
// work, whenever it can; drain.
type driver struct {
	name       string
	desired    *desired
	condition  *condition
	connection *connection
	finalizer  string
	kube       attach.Kube
	cluster    *cache.Cluster
	routes     *router
	windDown   *windDown
	grace      time.Duration

	term    *lease.Term
	table   *volume.Table
	overlay *cache.Overlay
	budget  *rate.Limiter // of writes to the Kubernetes API
	guards  *attach.VolumeGuards
	// writeTimeout bounds one of them: it has to fit into a lease. 0: no lease.
	writeTimeout time.Duration

	intruder     *intruder
	intruderSaid complaint
	halt         *halt // to be put on when another attacher is found at work
	tally        *tally
	absence      *absence
	events       events
	logger       klog.Logger

	gate   sync.Mutex // is held while the queue is opened or shut
	opened bool       // the queue was open once; guarded by gate
	left   bool       // the queue does not open any more; guarded by gate
	gone   bool       // it takes no events any more; guarded by the router's mutex

	cacheIsNew atomic.Bool            // see knowsAll
	collection atomic.Pointer[string] // resourceVersion of all VolumeAttachments when first asked for in this term

	workers sync.WaitGroup
	fail    context.CancelCauseFunc // ends this run of the driver, with what went wrong
}

// run works for the driver until ctx ends, then lets the calls in flight end within
// the grace and cancels what is left; when the lease is lost, it cancels at once. When
// it returns, all its goroutines have ended. An error is a fault of this program in the
// work for this driver: a panic.
func (d *driver) run(ctx context.Context) error {
	intake, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// Calls outlive the intake: one that is cut off leaves its volume in doubt.
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	d.fail = fail

	var loops sync.WaitGroup
	goSafely(&loops, fail, func() {
		d.table.Run(intake, func(e *volume.Entry) {
			goSafely(&d.workers, fail, func() { d.work(calls, e) })
		})
	})
	// Also while the driver cannot be called: what vanishes then is known to nobody else.
	d.routes.open(d)
	contain(fail, func() { d.connection.serve(d) })
	contain(fail, func() {
		d.attend(intake, &loops, []*round{d.driftRound(), d.stuckRound(), d.resyncRound()}, func() {
			fail(errLeaseLost)
			cut()
		})
	})
	defer d.tally.setStuck(nil)
	d.connection.serve(nil)
	d.routes.close(d)
	d.condition.drain("calls in flight may end", time.Now())
	defer time.AfterFunc(d.grace, cut).Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		loops.Wait()
		d.workers.Wait()
		d.table.Close()
		contain(d.cannotDrain, func() { d.detachUnowned(calls) })
	}()
	select {
	case <-ended:
	case <-d.term.Lost(): // while it drains
		cut()
		<-ended
	}
	if err := context.Cause(intake); ctx.Err() == nil && !errors.Is(err, errLeaseLost) && !errors.Is(err, errLetGo) {
		return err
	}
	return nil
}

var (
	// errLeaseLost ends the work of a driver whose lease was not renewed in time.
	errLeaseLost = errors.New("the lease was lost")
	// errLetGo ends the work of a driver that cannot be called from here.
	errLetGo = errors.New("the driver cannot be called from here")
)

// setLimits carries the settings into what holds a copy of them. It loses nothing that
// waits.
func (d *driver) setLimits(value registry.Driver) {
	d.table.SetLimits(value.Workers, value.MaxPerNode, value.ParallelMultiNode)
	limit, burst := rate.Inf, 0
	if value.KubeAPI.QPS > 0 {
		limit, burst = rate.Limit(value.KubeAPI.QPS), value.KubeAPI.BurstOrDefault()
	}
	// The burst first: as long as there is no limit the budget fills up at once, and
	// a driver does not begin with an empty one.
	d.budget.SetBurst(burst)
	d.budget.SetLimit(limit)
}

// connectionChanged lets work start if the driver can be called, and wait if not. What
// the driver can do may have changed since the last session, so all its
// VolumeAttachments are looked at again.
func (d *driver) connectionChanged() {
	if up, _, _ := d.connection.isUp(); up {
		d.routes.open(d)
		d.backfill()
	}
	d.gate.Lock()
	defer d.gate.Unlock()
	if d.left {
		return
	}
	if up, _, _ := d.connection.isUp(); up {
		if !d.opened {
			value, _ := d.desired.get()
			info := d.connection.session.Load().Info()
			d.logger.Info("Serving the driver", "endpoint", value.Endpoint, "version", info.Version, "attaches", info.Capabilities.PublishUnpublish)
		}
		d.opened = true
		d.table.OpenLanes()
	} else if d.opened {
		d.table.ShutLanes()
	}
}

// leave ends the work for a driver that cannot be called, unless calls to it are in flight:
// no other begins. It reports whether it did.
func (d *driver) leave() bool {
	d.gate.Lock()
	defer d.gate.Unlock()
	if up, _, _ := d.connection.isUp(); up || d.table.IsCalling() {
		return false
	}
	d.left = true
	d.logger.V(2).Info("The driver cannot be called from here, its lease is let go so that others can try")
	return true
}

// goSafely runs f in a goroutine of the group. A panic in it ends the run of one driver
// and nothing else (external-attacher issue 502: one driver's odd answer ended the
// process).
func goSafely(group *sync.WaitGroup, fail func(error), f func()) {
	group.Go(func() { contain(fail, f) })
}

// contain calls f and tells fail of a panic in it.
func contain(fail func(error), f func()) {
	if err := panics.Catch(f); err != nil {
		fail(err)
	}
}

// decider returns what decisions depend on now. Capabilities are those of the last
// session: they say what the driver was when there is none.
func (d *driver) decider() attach.Driver {
	decider := attach.Driver{
		Name:          d.name,
		DefaultFSType: d.desired.settings().DefaultFSType,
		NoAttach:      !d.cluster.AttachRequired(d.name),
	}
	if s := d.connection.session.Load(); s != nil {
		decider.Capabilities = s.Info().Capabilities
	}
	return decider
}

// wanted returns what a VolumeAttachment asks for in its newest known state, Idle if it is gone, and
// in which lane that has to be done.
func (d *driver) wanted(name string) (attach.Operation, volume.Lane) {
	va := d.overlay.Attachment(name)
	if va == nil {
		return attach.Idle, volume.DetachLane
	}
	return d.wantedOf(d.decider(), va)
}

// wantedOf is wanted for one state of a VolumeAttachment.
func (d *driver) wantedOf(decider attach.Driver, va *storagev1.VolumeAttachment) (attach.Operation, volume.Lane) {
	op := decider.Wanted(va)
	if op == attach.Idle && va.DeletionTimestamp == nil && d.table.IsLost(va) {
		return attach.Attaching, volume.DriftLane
	}
	return op, volume.LaneOf(op)
}

// isUnchanged reports whether a VolumeAttachment is as it was last decided on or written.
func (d *driver) isUnchanged(name string) bool {
	va := d.overlay.Attachment(name)
	if va == nil {
		return false
	}
	_, unchanged := d.table.Known(va)
	return unchanged
}
