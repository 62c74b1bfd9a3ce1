package hub

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// resyncEvery is the interval of the search for work that no event has led to.
const resyncEvery = 5 * time.Minute

// resyncing returns the periodic search of the caches for work that no event has led to. It costs no request.
func (l *leader) resyncing() *periodic {
	return &periodic{
		pause: func(registry.Settings) time.Duration { return resyncEvery },
		run:   func(ctx context.Context) { l.resync(klog.FromContext(ctx)) },
	}
}

// resync adds the entries that are missing for the objects in the caches. Existing entries keep their backoff.
func (l *leader) resync(logger klog.Logger) {
	missed := l.findMissing()
	add := func(key volume.Key, lane volume.Lane, place func() volume.Place) {
		if !l.table.Has(key) {
			missed++
			l.table.Add(key, lane, place())
		}
	}
	missed += l.table.Requeue()
	decider := l.decider()
	for _, va := range l.cluster.AttachmentsOfDriver(l.name) {
		va = l.overlay.Newest(va)
		if op, lane := l.wantedOf(decider, va); op != attach.Idle {
			add(volume.ClaimKey(va.Name), lane, func() volume.Place { return l.placeOf(va, op) })
		}
	}
	for _, pv := range l.cluster.ReleasableVolumes(l.finalizer) {
		if attach.Releasable(pv, l.name) && !l.cluster.VolumeInUse(pv.Name) {
			add(volume.FinalizerKey(pv.Name), volume.FinalizerLane, func() volume.Place { return volume.Place{} })
		}
	}
	if missed > 0 {
		logger.Info("Resync found operations that no watch event had started", "operations", missed)
	}
}
