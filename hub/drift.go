package hub

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// confirmAfter is the time until the listing that may confirm a difference.
	confirmAfter = 10 * time.Second
	// longestListing bounds a listing: a driver may return pages without end.
	longestListing = time.Hour
	// listShare is 10: a driver spends at most a tenth of the time on listings.
	listShare = 10
	// longestListPause is the longest pause after listings that fail: a listing may be what ends the driver's process.
	longestListPause = time.Hour
)

// driftWatch compares a driver's list of volumes with the VolumeAttachments that are attached.
type driftWatch struct {
	leader     *leader
	count      attach.DriftCount[types.UID]     // of differences at VolumeAttachments
	unexpected attach.DriftCount[attach.Target] // of volumes where no VolumeAttachment asks for them
	reported   map[types.UID]bool               // VolumeAttachments whose difference was reported and persists
	looked     bool                             // there was a listing
	took       time.Duration                    // length of the last listing
	failed     int                              // listings in a row
	problem    loglimit.Problem                 // of listings that fail
}

// driftCheck returns the periodic comparison. Drivers begin at different times, so that they do not list
// all at once.
func (l *leader) driftCheck() *periodic {
	w := &driftWatch{leader: l, reported: map[types.UID]bool{}}
	lag := rand.Float64()
	return &periodic{
		pause: func(s registry.Settings) time.Duration { return w.pause(s.Drift.Interval, lag) },
		run: func(ctx context.Context) {
			w.check(ctx)
			w.looked = true
		},
	}
}

// pause returns the time from one listing to the next, and to the first. It doubles with each listing that fails.
func (w *driftWatch) pause(interval time.Duration, lag float64) time.Duration {
	if interval == 0 { // off
		return never
	}
	switch {
	case !w.looked:
		return time.Duration(lag * float64(interval))
	case w.count.Pending() || w.unexpected.Pending():
		interval = min(interval, confirmAfter)
	}
	if w.failed > 0 {
		interval = max(interval, min(interval<<min(w.failed, 16), longestListPause))
	}
	return max(interval, listShare*w.took)
}

// check lists the volumes once and acts on the differences that the listing confirms.
func (w *driftWatch) check(ctx context.Context) {
	l, settings := w.leader, w.leader.settings().Drift
	s := l.session()
	if s == nil || isDone(s) || !s.Info().Capabilities.ListPublishedNodes {
		return
	}
	began, all := time.Now(), l.attachments()
	before := l.settled(all)
	worked, end := l.table.Listing()
	defer end()
	bounded, cancel := context.WithTimeout(ctx, longestListing)
	defer cancel()
	published, took, err := s.ListVolumes(bounded, settings.PageSize)
	w.took = took
	if err != nil {
		if w.failed++; ctx.Err() == nil && w.problem.IsDue(err.Error(), time.Now()) {
			l.logger.Info("ListVolumes failed, so drift was not checked, will retry", "err", err)
		}
		return
	}
	w.failed = 0
	found, drifted := l.compare(ctx, before, published)
	l.forgetFound(published)
	w.onFound(ctx, l.findDangling(ctx, published, all, worked))
	l.endUnlisted(published, began)
	maps.DeleteFunc(w.reported, func(uid types.UID, _ bool) bool { return drifted[uid] == nil })
	for _, uid := range w.count.Add(found) {
		w.onDrift(drifted[uid], found[uid])
	}
}

// endUnlisted ends the unowned publications that a listing does not show any more.
func (l *leader) endUnlisted(published csiclient.Published, began time.Time) {
	decider := l.decider()
	has := func(at attach.Target) (listed, there bool) {
		nodes, listed := published[decider.ListedHandle(at.VolumeHandle, at.NodeID)]
		return listed && !nodes.Unknown, nodes.Has(at.NodeID)
	}
	for _, u := range l.table.Listed(has, began, l.settings().Timeout) {
		message := "ListVolumes does not report the volume of a deleted VolumeAttachment on this node, not detaching it"
		if u.Listed {
			message = "ListVolumes no longer reports the volume on this node, not detaching it"
		}
		l.log.line(l.unownedLogger(u), true, message)
	}
}

// compare returns the differences between a listing and the VolumeAttachments that were settled before it and
// have not changed since, by UID. It also removes attachErrors that the listing disproves.
func (l *leader) compare(ctx context.Context, before map[string]*storagev1.VolumeAttachment, published csiclient.Published) (map[types.UID]attach.DriftKind, map[types.UID]*storagev1.VolumeAttachment) {
	found := map[types.UID]attach.DriftKind{}
	drifted := map[types.UID]*storagev1.VolumeAttachment{}
	decider := l.decider()
	for name, va := range l.settled(l.attachments()) {
		if was := before[name]; was == nil || was.ResourceVersion != va.ResourceVersion {
			continue
		}
		if va.Status.AttachError == nil && decider.SurelyListed(va, published) {
			continue // nearly all: their PersistentVolumes are not decoded each time
		}
		inputs := l.cachedInputs(va)
		kind, err := decider.Drift(inputs, published)
		if err != nil {
			l.volumeLogger(va).V(4).Info("Failed to compare the VolumeAttachment with ListVolumes", "err", err)
		}
		if kind != attach.DriftNone {
			found[va.UID], drifted[va.UID] = kind, va
		}
		if decider.Healed(inputs, published) {
			if err := l.writer().ForgetError(ctx, va, attach.Attaching); err != nil {
				l.volumeLogger(va).V(2).Info("Failed to remove the attachError of a volume that ListVolumes reports as attached", "err", err)
			}
		}
	}
	return found, drifted
}

// forgetFound ends the repair of lost volumes that a listing reports again: while the repair fails, another
// client or the storage system itself may attach the volume again.
func (l *leader) forgetFound(published csiclient.Published) {
	for _, name := range l.table.LostNames() {
		va := l.overlay.Attachment(name)
		if va == nil || !l.decider().Listed(l.cachedInputs(va), published) {
			continue
		}
		l.log.line(l.volumeLogger(va), true, "ListVolumes reports the volume on this node again, not attaching it again")
		l.table.SetLost(va, false)
		l.queue.RetryNow(queue.ClaimKey(name))
	}
}

// onDrift reports a confirmed difference, and adds an entry that attaches the volume again if drift.action says so.
func (w *driftWatch) onDrift(va *storagev1.VolumeAttachment, kind attach.DriftKind) {
	l, action := w.leader, w.leader.settings().Drift.Action
	if !w.reported[va.UID] {
		l.counters.metrics.Drift(string(kind), string(action))
		l.events.drift(va, action)
		l.log.line(l.volumeLogger(va), true, "ListVolumes no longer reports the volume on this node", "kind", kind, "action", action)
	}
	w.reported[va.UID] = true
	if key := queue.ClaimKey(va.Name); action == registry.DriftReattach && !l.queue.Has(key) {
		l.table.Open(va)
		l.table.SetLost(va, true)
		l.queue.Add(key, queue.DriftLane, l.placeOf(va, attach.Attaching))
	}
}

// settled returns those of some VolumeAttachments, by name, that are attached and have no entry.
func (l *leader) settled(vas []*storagev1.VolumeAttachment) map[string]*storagev1.VolumeAttachment {
	decider := l.decider()
	settled := map[string]*storagev1.VolumeAttachment{}
	for _, va := range vas {
		if va.Status.Attached && decider.RequiredOperation(va) == attach.Idle && va.DeletionTimestamp == nil && !l.queue.Has(queue.ClaimKey(va.Name)) {
			settled[va.Name] = va
		}
	}
	return settled
}
