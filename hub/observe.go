package hub

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/observe"
)

// observe watches another attacher work for the driver until ctx ends.
func (p *post) observe(ctx context.Context) error {
	o := observe.New(observe.Options{
		Driver:  p.name,
		Cluster: p.hub.cluster,
		Secrets: p.hub.options.Kube.CoreV1(),
		Decider: p.decider,
		Metrics: p.tally.metrics,
	})
	p.observer.Store(o)
	defer p.observer.Store(nil)
	p.logger.Info("Watching another attacher serve the driver: nothing is written and nothing is called")
	defer p.hub.routes.observe(p.name, observing{o})()
	p.connection.serve(observing{o})
	defer p.connection.serve(nil)
	return o.Run(klog.NewContext(ctx, p.logger))
}

// decider returns what an active hub would decide by, false while the driver has not reported its
// capabilities.
func (p *post) decider() (attach.Driver, bool) {
	s := p.connection.session.Load()
	if s == nil {
		return attach.Driver{}, false
	}
	return attach.Driver{Name: p.name, DefaultFSType: p.desired.settings().DefaultFSType,
		NoAttach: !p.hub.cluster.AttachRequired(p.name), Capabilities: s.Info().Capabilities}, true
}

// observing hands the events of a driver to its Observer.
type observing struct{ *observe.Observer }

// onAttachment implements listener.
func (o observing) onAttachment(_, va *storagev1.VolumeAttachment) { o.Look(va.Name) }

// onAttachmentGone implements listener.
func (o observing) onAttachmentGone(va *storagev1.VolumeAttachment) { o.Look(va.Name) }

// retryNow implements listener.
func (o observing) retryNow(name string) { o.Look(name) }

// lookAgain implements listener.
func (o observing) lookAgain() { o.LookAtAll() }

// connectionChanged implements connectionUser.
func (o observing) connectionChanged() { o.LookAtAll() }
