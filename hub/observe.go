package hub

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/observe"
)

// observe watches another attacher work for the driver until ctx ends.
func (m *manager) observe(ctx context.Context) error {
	m.hub.leaseView(m.get()) // from now on the lease is watched: the status says who holds it
	m.logger.Info("Observing driver: the hub attaches, detaches and writes nothing")
	o := observe.New(observe.Options{
		Driver:     m.name,
		Cluster:    m.cluster,
		ReadSecret: m.readSecret,
		Decider:    func() (attach.Driver, bool) { return m.decider(), m.session() != nil },
		Metrics:    m.metrics,
		Ask:        m.askChecks,
	})
	m.update(func(s *driverState) { s.observer = o })
	defer m.update(func(s *driverState) { s.observer = nil })
	m.hub.routes.open(m.name, observing{o})
	defer m.hub.routes.close(m.name, observing{o})
	o.LookAtAll()
	return o.Run(klog.NewContext(ctx, m.logger))
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
