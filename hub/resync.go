package hub

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
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

// resync adds the items that are missing for the objects in the caches. Existing items keep their backoff.
func (l *leader) resync(logger klog.Logger) {
	missed := l.findMissing()
	add := func(key queue.Key, lane queue.Lane, place func() queue.Place) {
		if !l.queue.Has(key) {
			missed++
			l.queue.Add(key, lane, place())
		}
	}
	missed += l.table.Requeue()
	decider := l.decider()
	for _, va := range l.overlay.AttachmentsOfDriver(l.name) {
		if op, lane := l.wantedOf(decider, va); op != attach.Idle {
			add(queue.ClaimKey(va.Name), lane, func() queue.Place { return l.placeOf(va, op) })
		}
	}
	for _, pv := range l.cluster.ReleasableVolumes(l.name) {
		if !l.cluster.VolumeInUse(pv.Name) {
			add(queue.FinalizerKey(pv.Name), queue.FinalizerLane, func() queue.Place { return queue.Place{} })
		}
	}
	if missed > 0 {
		logger.Info("Resync found operations that no watch event had started", "operations", missed)
	}
}
