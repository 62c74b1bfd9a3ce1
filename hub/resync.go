package hub

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// resyncEvery is how often a driver's caches are looked through for work that no event has led
// to.
const resyncEvery = 5 * time.Minute

// resyncRound does that: events are for speed, and what they miss is found here. It costs
// no request.
func (d *driver) resyncRound() *round {
	return &round{
		pause: func(registry.Settings) time.Duration { return resyncEvery },
		look:  func(ctx context.Context) { d.resync(klog.FromContext(ctx)) },
	}
}

// resync asks for all work that is wanted and that the queue does not have. What the queue has
// keeps its backoff.
func (d *driver) resync(logger klog.Logger) {
	missed := 0
	add := func(key workKey, l lane) {
		if !d.queue.Has(key) {
			missed++
			d.queue.Add(key, l)
		}
	}
	for _, name := range d.ledger.names() {
		if d.overlay.Attachment(name) == nil {
			d.ledger.vanish(name)
			add(workKey{attachmentWork, name}, detachLane)
		}
	}
	for _, key := range d.ledger.orphanKeys() {
		add(key, detachLane)
	}
	decider := d.decider()
	for _, va := range d.cluster.AttachmentsOfDriver(d.name) {
		if op, l := d.wantedOf(decider, d.overlay.Newest(va)); op != attach.Idle {
			add(workKey{attachmentWork, va.Name}, l)
		}
	}
	for _, pv := range d.cluster.ReleasableVolumes(d.finalizer) {
		if attach.Leaving(pv, d.name) && !d.cluster.VolumeInUse(pv.Name) {
			add(workKey{volumeWork, pv.Name}, releaseLane)
		}
	}
	if missed > 0 {
		logger.Info("Found work that no event had led to", "items", missed)
	}
}
