package observe

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

const (
	// workers is how many VolumeAttachments are compared at once: each may need a Secret to be read.
	workers = 4
	// A VolumeAttachment that cannot be compared now is tried again, later each time.
	retryInitial = 200 * time.Millisecond
	retryMax     = time.Minute
)

// Options are what an Observer needs. All are required but Metrics.
type Options struct {
	Driver  string // name of the CSI driver
	Cluster *cache.Cluster
	Secrets corev1client.SecretsGetter
	// Decider returns what the hub would decide by now, and false while the driver has not reported
	// its capabilities yet. It must not block.
	Decider func() (attach.Driver, bool)
	Metrics *status.DriverMetrics // nil: nothing is counted there
}

// Observer watches another attacher work for a driver, and compares. Its methods may be called at the
// same time, and only Run blocks.
type Observer struct {
	options  Options
	queue    workqueue.TypedRateLimitingInterface[string] // names of VolumeAttachments
	secrets  *secrets
	findings *findings
}

// New returns an Observer. It starts nothing.
func New(o Options) *Observer {
	return &Observer{
		options: o,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryInitial, retryMax)),
		secrets:  newSecrets(o.Secrets),
		findings: newFindings(o.Driver, o.Metrics),
	}
}

// Run compares until ctx ends, and then returns nil. It returns an error only for a fault of this
// program: a panic. When it has returned, all its goroutines have ended.
func (o *Observer) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	run := func(f func()) { group.Go(func() error { return panics.Catch(f) }) }
	for range workers {
		run(func() {
			for o.next(ctx) {
			}
		})
	}
	run(func() { o.reviewSecrets(ctx) })
	run(func() {
		<-ctx.Done()
		o.queue.ShutDown()
	})
	return group.Wait()
}

// Look has a VolumeAttachment compared: it was added, has changed or is gone, or an object that it
// needs has changed.
func (o *Observer) Look(name string) { o.queue.Add(name) }

// LookAtAll has all VolumeAttachments of the driver compared: what the driver needs or can do may have
// changed.
func (o *Observer) LookAtAll() {
	for _, va := range o.options.Cluster.AttachmentsOfDriver(o.options.Driver) {
		o.Look(va.Name)
	}
}

// next compares one VolumeAttachment. It returns false when the queue is shut and empty.
func (o *Observer) next(ctx context.Context) bool {
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

// compare compares one VolumeAttachment. An error says that this is not possible now.
func (o *Observer) compare(ctx context.Context, name string) error {
	decider, known := o.options.Decider()
	if !known {
		return nil // LookAtAll follows when the driver is connected
	}
	va := o.options.Cluster.Attachment(name)
	o.findings.endUnless(va, name, decider)
	if va == nil {
		return nil
	}
	inputs, err := o.options.Cluster.ReadInputs(ctx, va)
	if err != nil {
		return err
	}
	finding := decider.Observe(inputs)
	if err := o.checkSecret(ctx, &finding); err != nil {
		return err
	}
	o.findings.add(inputs, finding)
	return nil
}

// checkSecret turns a finding into a failure if the Secret that the hub's call needs cannot be read.
// An error says that this is not known now.
func (o *Observer) checkSecret(ctx context.Context, finding *attach.Observation) error {
	if finding.SecretRef == nil || finding.WouldFail {
		return nil
	}
	err := o.secrets.check(ctx, *finding.SecretRef)
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

// reviewSecrets reads the Secrets that could not be read again and again, until ctx ends.
func (o *Observer) reviewSecrets(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(secretTTL): // from the end of the last review: by then its answers are old enough
			o.secrets.review(ctx, o.findings.neededSecrets())
		}
	}
}
