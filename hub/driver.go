package hub

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// driver serves one CSI driver, from the first connection to the end of the last
// call. All that it has is its own but the cluster's caches, which it only reads.
//
// Its life: connect, for ever, with a backoff; open its route and take what the
// index has; work, whenever there is a session; drain.
type driver struct {
	name      string
	desired   *desired
	finalizer string
	cluster   *Cluster
	routes    *router
	connect   ConnectFunc
	grace     time.Duration

	condition *condition
	ledger    *ledger
	overlay   *overlay
	queue     *queue
	session   atomic.Pointer[liveSession] // nil until the first one is there
	attempt   atomic.Pointer[attempt]     // to connect, the one of the moment

	workers sync.WaitGroup
	fail    context.CancelCauseFunc // ends this run of the driver, with what went wrong
}

// liveSession is the session that is in use, in one place so that it can be
// swapped at once.
type liveSession struct {
	Session
	ended atomic.Bool // it takes no call any more, those in flight may end
}

func (s *liveSession) end() {
	s.ended.Store(true)
	s.Close()
}

// run serves the driver until ctx ends, then lets the calls in flight end within
// the grace and cancels what is left. When it returns, all its goroutines have
// ended. An error is a fault of this program in the work for this driver: a panic.
func (d *driver) run(ctx context.Context) error {
	intake, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// Calls outlive the intake: one that is cut off leaves its volume in doubt.
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	d.fail = fail

	var loops sync.WaitGroup
	d.goSafely(&loops, func() { d.stayConnected(intake) })
	d.goSafely(&loops, func() { d.followDesired(intake) })
	d.goSafely(&loops, func() { d.watchDrift(intake) })
	d.goSafely(&loops, func() { d.watchStuck(intake) })
	d.goSafely(&loops, func() {
		d.queue.run(intake, func(it *item) {
			d.goSafely(&d.workers, func() { d.work(calls, it) })
		})
	})
	<-intake.Done()
	d.routes.close(d)
	loops.Wait()
	d.routes.close(d) // a session may have opened it in the last moment
	d.condition.enter(Draining, "calls in flight may end", time.Now())
	defer time.AfterFunc(d.grace, cut).Stop()
	d.workers.Wait()
	if s := d.session.Load(); s != nil {
		s.end()
	}
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(intake)
}

// goSafely runs f in a goroutine of the group. A panic in it ends this run of the
// driver and nothing else (external-attacher issue 502: one driver's odd answer
// ended the process).
func (d *driver) goSafely(group *sync.WaitGroup, f func()) {
	group.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				d.fail(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
			}
		}()
		f()
	})
}

// decider returns what decisions depend on now. Capabilities are those of the last
// session: they say what the driver was when there is none.
func (d *driver) decider() attach.Driver {
	decider := attach.Driver{
		Name:          d.name,
		DefaultFSType: d.settings().DefaultFSType,
		NoAttach:      !d.cluster.attachRequired(d.name),
	}
	if s := d.session.Load(); s != nil {
		decider.Capabilities = s.Info().Capabilities
	}
	return decider
}

// attacher returns what carries plans out.
func (d *driver) attacher() attach.Attacher {
	return attach.Attacher{Kube: d.cluster.kube, Controller: d, Written: d.overlay, Timeout: d.settings().Timeout}
}

// wanted returns what a VolumeAttachment asks for in its newest known state, Idle
// if it is gone, and in which lane that is to be done.
func (d *driver) wanted(name string) (attach.Operation, lane) {
	va := d.overlay.attachment(name)
	if va == nil {
		return attach.Idle, detachLane
	}
	return d.wantedOf(d.decider(), va)
}

// wantedOf is wanted for one state of a VolumeAttachment.
func (d *driver) wantedOf(decider attach.Driver, va *storagev1.VolumeAttachment) (attach.Operation, lane) {
	op := decider.Wanted(va)
	if op == attach.Idle && va.DeletionTimestamp == nil && d.ledger.isLost(va) {
		return attach.Attaching, driftLane
	}
	return op, laneOf(op)
}

// unchanged says whether a VolumeAttachment is as it was last decided on or written.
func (d *driver) unchanged(name string) bool {
	va := d.overlay.attachment(name)
	if va == nil {
		return false
	}
	_, unchanged := d.ledger.known(va)
	return unchanged
}

// backfill takes from the index all that there is to do. It is done with the route
// open, so that nothing falls between index and events.
func (d *driver) backfill() {
	decider := d.decider()
	for _, va := range d.cluster.attachmentsBy(byAttacher, d.name) {
		if op := decider.Wanted(d.overlay.newest(va)); op != attach.Idle {
			d.queue.Renew(workKey{attachmentWork, va.Name}, laneOf(op))
		}
	}
	for _, name := range d.ledger.names() {
		if d.overlay.attachment(name) == nil { // it went while nobody listened
			d.queue.Add(workKey{attachmentWork, name}, detachLane)
		}
	}
	for _, key := range d.ledger.orphanKeys() {
		d.queue.Add(key, detachLane)
	}
	for _, pv := range d.cluster.leavingVolumes(d.finalizer) {
		if attach.Leaving(pv, d.name) {
			d.queue.Add(workKey{volumeWork, pv.Name}, releaseLane)
		}
	}
}

func laneOf(op attach.Operation) lane {
	if op == attach.Detaching {
		return detachLane
	}
	return attachLane
}

// onAttachment takes a VolumeAttachment that was added or has changed.
func (d *driver) onAttachment(va *storagev1.VolumeAttachment) {
	d.overlay.attachments.OnAddOrUpdate(va)
	if va = d.overlay.attachment(va.Name); va == nil {
		return // it is gone meanwhile, and the event that says so follows
	}
	recorded, unchanged := d.ledger.known(va)
	op := d.decider().Wanted(va)
	if unchanged || !recorded && op == attach.Idle {
		return
	}
	d.queue.Add(workKey{attachmentWork, va.Name}, laneOf(op))
}

// onAttachmentGone takes the last state of a VolumeAttachment that is gone.
func (d *driver) onAttachmentGone(va *storagev1.VolumeAttachment) {
	d.overlay.attachments.OnDelete(va)
	recorded, _ := d.ledger.known(va)
	if recorded || d.ledger.adopt(va, d.cluster.cachedVolume(attach.VolumeName(va))) {
		d.queue.Add(workKey{attachmentWork, va.Name}, detachLane)
	}
	d.ledger.setReleased(va.UID, false)
}

// onVolume takes a PersistentVolume with the driver's finalizer that was added or
// has changed, or that a VolumeAttachment has let go of.
func (d *driver) onVolume(pv *corev1.PersistentVolume) {
	d.overlay.volumes.OnAddOrUpdate(pv)
	if attach.Leaving(pv, d.name) {
		d.queue.Add(workKey{volumeWork, pv.Name}, releaseLane)
	}
}
