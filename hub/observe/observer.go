package observe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

const (
	// workers is the number of VolumeAttachments that are compared at once: each may need a read of a Secret.
	workers = 4
	// The backoff of a VolumeAttachment that cannot be compared now.
	retryInitial = 200 * time.Millisecond
	retryMax     = time.Minute
	// askInterval is the pause between two calls of Options.Ask.
	askInterval = time.Minute
)

// Options are what an Observer needs. All are required but Metrics.
type Options struct {
	Driver  string // name of the CSI driver
	Cluster *cache.Cluster
	// ReadSecret reads a Secret that a volume of the driver names.
	ReadSecret func(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error)
	// Decider returns the present inputs of the hub's decisions, and false while the driver has not
	// reported its capabilities yet. It must not block.
	Decider func() (attach.Driver, bool)
	Metrics *status.DriverMetrics
	// Ask asks what the driver's checklist needs of the API server. It is called each minute; nil: nothing is asked.
	Ask func(context.Context)
}

// Observer watches another attacher work for a driver, and compares. Its methods are safe for concurrent use,
// and only Run blocks.
type Observer struct {
	options Options
	queue   workqueue.TypedRateLimitingInterface[string] // names of VolumeAttachments
	secrets *secrets

	mu          sync.Mutex
	attachments map[string]*attachment // by name; guarded by mu
	seen        status.Observed        // without Pending, the latest disagreement first; guarded by mu
}

// New returns an Observer. It starts nothing.
func New(o Options) *Observer {
	return &Observer{
		options: o,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryInitial, retryMax)),
		secrets:     newSecrets(o.ReadSecret),
		attachments: map[string]*attachment{},
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
	if o.options.Ask != nil {
		run(func() { o.ask(ctx) })
	}
	run(func() {
		<-ctx.Done()
		o.queue.ShutDown()
	})
	return group.Wait()
}

// Look enqueues a VolumeAttachment to be compared. It is called when the VolumeAttachment was added, has changed
// or is gone, or when an object that it refers to has changed.
func (o *Observer) Look(name string) { o.queue.Add(name) }

// LookAtAll enqueues all VolumeAttachments of the driver. It is called when the driver's capabilities or
// attachRequired may have changed.
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
		if va := o.options.Cluster.Attachment(name); va != nil {
			keys := attach.LogKeys(va, o.options.Cluster.VolumeHandle(va))
			klog.FromContext(ctx).V(2).Info("Failed to compare the VolumeAttachment, will retry", append(keys, "err", err)...)
		}
		o.queue.AddRateLimited(name)
		return true
	}
	o.queue.Forget(name)
	return true
}

// compare compares one VolumeAttachment. It returns an error if that is not possible now.
func (o *Observer) compare(ctx context.Context, name string) error {
	decider, known := o.options.Decider()
	if !known {
		return nil // LookAtAll follows when the driver is connected
	}
	va := o.options.Cluster.Attachment(name)
	o.endUnless(va, name, decider)
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
	o.add(inputs, finding)
	return nil
}

// checkSecret turns a finding into a failure if the hub cannot read the Secret that its call needs. It returns an
// error if that is not known now.
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

// ask calls Options.Ask every askInterval until ctx ends.
func (o *Observer) ask(ctx context.Context) {
	for ctx.Err() == nil {
		o.options.Ask(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(askInterval):
		}
	}
}
