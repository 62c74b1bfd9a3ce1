package hub

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
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

// resync asks for all work that is wanted and that has no entry. Entries keep their backoff.
func (d *driver) resync(logger klog.Logger) {
	missed := d.findMissing()
	add := func(key volume.Key, l volume.Lane, place func() volume.Place) {
		if !d.table.Has(key) {
			missed++
			d.table.Add(key, l, place())
		}
	}
	missed += d.table.Requeue()
	decider := d.decider()
	for _, va := range d.cluster.AttachmentsOfDriver(d.name) {
		va = d.overlay.Newest(va)
		if op, l := d.wantedOf(decider, va); op != attach.Idle {
			add(volume.ClaimKey(va.Name), l, func() volume.Place { return d.placeOf(va, op) })
		}
	}
	for _, pv := range d.cluster.ReleasableVolumes(d.finalizer) {
		if attach.Leaving(pv, d.name) && !d.cluster.VolumeInUse(pv.Name) {
			add(volume.FinalizerKey(pv.Name), volume.FinalizerLane, func() volume.Place { return volume.Place{} })
		}
	}
	if missed > 0 {
		logger.Info("Found work that no event had led to", "items", missed)
	}
}
