package hub

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const (
	// observers is how many VolumeAttachments of one driver are compared at once: each
	// may have to read a secret.
	observers = 4
	// What cannot be compared is tried again, later each time.
	compareRetryInitial = 200 * time.Millisecond
	compareRetryMax     = time.Minute
)

// observer watches another attacher work for a driver and compares what comes of it
// with what the hub would have done. It writes nothing and makes no call that changes
// anything.
type observer struct {
	name    string
	cluster *cache.Cluster
	manager *manager
	queue   workqueue.TypedRateLimitingInterface[string] // names of VolumeAttachments

	secrets *secretLooks

	mu     sync.Mutex
	seen   map[string]*observed // by VolumeAttachment name
	counts map[attach.Agreement]int
	odd    []status.Disagreement // the latest first
}

// keptDisagreements is how many of them are kept to be shown.
const keptDisagreements = 100

// observed is one VolumeAttachment that is watched.
type observed struct {
	facts  attach.Facts        // the last ones that were judged, without the volume
	volume *cache.StoredVolume // nil: there was none
	attach attach.Observation
	judged bool // the attach was
}

// observe watches the driver until ctx ends.
func (m *manager) observe(ctx context.Context) error {
	o := &observer{
		name:    m.name,
		cluster: m.cluster,
		manager: m,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](compareRetryInitial, compareRetryMax)),
		secrets: newSecretLooks(m.hub.options.Kube.CoreV1()),
		seen:    map[string]*observed{},
		counts:  map[attach.Agreement]int{},
	}
	m.update(func(s *driverState) { s.observer = o })
	defer m.update(func(s *driverState) { s.observer = nil })
	m.logger.Info("Watching another attacher serve the driver: nothing is written and nothing is called")
	stop := m.hub.routes.observe(m.name, o)
	defer stop()
	return o.run(klog.NewContext(ctx, m.logger))
}

// run compares until ctx ends.
func (o *observer) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var workers sync.WaitGroup
	for range observers {
		goSafely(&workers, fail, func() {
			for o.next(ctx) {
			}
		})
	}
	goSafely(&workers, fail, func() {
		looked, since := false, time.Time{}
		o.manager.await(ctx, func(s driverState) (time.Duration, bool) {
			if !looked || s.upSince != since {
				looked, since = true, s.upSince
				o.lookAgain()
			}
			return never, false
		})
	})
	goSafely(&workers, fail, func() {
		for sleep(ctx, secretTTL); ctx.Err() == nil; sleep(ctx, secretTTL) {
			o.secrets.review(ctx, o.neededSecrets())
		}
	})
	<-ctx.Done()
	o.queue.ShutDown()
	workers.Wait()
	if err := context.Cause(ctx); err != context.Canceled {
		return err
	}
	return nil
}

// next compares one VolumeAttachment. It returns false when there will be none any more.
func (o *observer) next(ctx context.Context) bool {
	name, shutdown := o.queue.Get()
	if shutdown {
		return false
	}
	defer o.queue.Done(name)
	if err := o.compare(ctx, name); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot compare a VolumeAttachment, will try again", "volumeAttachment", name, "err", err)
		o.queue.AddRateLimited(name)
		return true
	}
	o.queue.Forget(name)
	return true
}

// onAttachment implements listener.
func (o *observer) onAttachment(_, va *storagev1.VolumeAttachment) { o.queue.Add(va.Name) }

// onAttachmentGone implements listener.
func (o *observer) onAttachmentGone(va *storagev1.VolumeAttachment) { o.queue.Add(va.Name) }

// retryNow implements listener.
func (o *observer) retryNow(name string) { o.queue.Add(name) }

// lookAgain implements listener.
func (o *observer) lookAgain() {
	for _, va := range o.cluster.AttachmentsOfDriver(o.name) {
		o.queue.Add(va.Name)
	}
}

// compare judges what has become of one VolumeAttachment. An error says that it cannot
// be judged now.
func (o *observer) compare(ctx context.Context, name string) error {
	if o.manager.session() == nil {
		return nil // what the driver can do is not known: it is looked at again then
	}
	decider := o.manager.decider()
	va := o.cluster.Attachment(name)
	before := o.entry(name)
	if before != nil && (va == nil || va.UID != before.facts.VolumeAttachment.UID) {
		o.close(name, decider, before)
		before = nil
	}
	if va == nil {
		return nil
	}
	facts, err := readFacts(ctx, o.cluster, va, o.cluster.Volume)
	if err != nil {
		return err
	}
	finding := decider.Observe(facts)
	if err := o.checkSecret(ctx, &finding); err != nil {
		return err
	}
	o.keep(name, before, facts, finding)
	return nil
}

func (o *observer) entry(name string) *observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[name]
}

// keep takes a finding in. The first final one about an attach stands: what it was
// judged by may change later.
func (o *observer) keep(name string, before *observed, facts attach.Facts, finding attach.Observation) {
	kept, pv := withoutVolume(facts)
	o.mu.Lock()
	defer o.mu.Unlock()
	e := before
	if e == nil {
		e = &observed{}
		o.seen[name] = e
	}
	guarded, volume := e.facts, e.volume
	e.facts, e.volume = kept, pv
	if guarded.VolumeAttachment != nil && attach.HasFinalizer(guarded.VolumeAttachment.Finalizers, attach.Finalizer(o.name)) &&
		!attach.HasFinalizer(facts.VolumeAttachment.Finalizers, attach.Finalizer(o.name)) {
		e.facts, e.volume = guarded, volume // a detach is judged by the last state that had it
	}
	if finding.Operation == attach.Detaching && !finding.Final() || e.judged {
		return
	}
	e.attach = finding
	if finding.Final() {
		e.judged = true
		o.count(facts.VolumeAttachment, finding)
	}
}

// withoutVolume takes the PersistentVolume out of facts and over, to be kept as small as in
// the cache.
func withoutVolume(f attach.Facts) (attach.Facts, *cache.StoredVolume) {
	pv := f.PersistentVolume
	if pv == nil {
		return f, nil
	}
	v, err := cache.StoreVolume(pv)
	if err != nil {
		return f, nil
	}
	f.PersistentVolume = nil
	return f, v
}

// close judges the detach of a VolumeAttachment that is gone.
func (o *observer) close(name string, decider attach.Driver, e *observed) {
	finding := attach.Observation{Agreement: attach.Pending}
	if e.facts.VolumeAttachment.DeletionTimestamp != nil {
		facts := e.facts
		if e.volume != nil {
			facts.PersistentVolume = e.volume.PersistentVolume()
		}
		finding = decider.ObserveDetach(facts)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, name)
	if finding.Final() {
		o.count(e.facts.VolumeAttachment, finding)
	}
}

// count counts a final finding. The caller holds the mutex.
func (o *observer) count(va *storagev1.VolumeAttachment, finding attach.Observation) {
	o.counts[finding.Agreement]++
	agreement := agreementOf(finding.Agreement)
	o.manager.counters.metrics.Observed(agreement)
	if finding.Agreement == attach.Agreed {
		return
	}
	o.odd = append([]status.Disagreement{{VolumeAttachment: va.Name, Node: va.Spec.NodeName, Agreement: agreement,
		Reason: finding.Operation.String() + ": " + finding.Reason, Since: time.Now()}},
		o.odd[:min(len(o.odd), keptDisagreements-1)]...)
}

func agreementOf(a attach.Agreement) status.Agreement {
	switch a {
	case attach.Agreed:
		return status.Agreed
	case attach.WouldHaveFailed:
		return status.WouldHaveFailed
	}
	return status.Differs
}

// checkSecret turns a finding into a failure if the secret that would go with the call
// cannot be read. An error says that this cannot be told now.
func (o *observer) checkSecret(ctx context.Context, finding *attach.Observation) error {
	if finding.SecretRef == nil || finding.WouldFail {
		return nil
	}
	err := o.secrets.look(ctx, *finding.SecretRef)
	if attach.NotReady(err) {
		return fmt.Errorf("read secret %s/%s: %w", finding.SecretRef.Namespace, finding.SecretRef.Name, err)
	}
	if err != nil {
		finding.WouldFail, finding.Reason = true, err.Error()
		if finding.Final() {
			finding.Agreement = attach.WouldHaveFailed
		}
	}
	return nil
}

// neededSecrets returns those that go with the calls for the VolumeAttachments that are
// watched.
func (o *observer) neededSecrets() map[corev1.SecretReference]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	needed := map[corev1.SecretReference]bool{}
	for _, e := range o.seen {
		if ref := e.attach.SecretRef; ref != nil {
			needed[*ref] = true
		}
	}
	return needed
}
