package hub

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// unownedState is how the detach of a volume goes that may be attached where no
// VolumeAttachment asks for it.
type unownedState struct {
	target   attach.Target
	since    time.Time // when this process came to know that the volume may be attached there
	refusals int       // definitive answers in a row, up to the last try
	refused  time.Time // the first of them
	failures int       // in a row
	last     string    // the last error
	waits    time.Time // since when it is not tried because of a possible owner; zero if it is
}

// refusalsToGiveUp is how many definitive answers in a row end the detach of a volume that no
// VolumeAttachment asks for: a driver that has just started may not have found its nodes.
const refusalsToGiveUp = 10

// definitive reports whether the driver has answered that it does not know the volume or
// the node, so that another try cannot end otherwise. InvalidArgument may be about
// secrets that are missing: it counts only if it is known which ones belong to the call.
func definitive(err error, secretsKnown bool) bool {
	switch grpcstatus.Code(err) {
	case codes.NotFound:
		return true
	case codes.InvalidArgument:
		return secretsKnown
	}
	return false
}

// failed takes in a try that has failed.
func (s *unownedState) failed(err error, secretsKnown bool, now time.Time) {
	s.failures++
	s.waits = time.Time{}
	s.last = csiclient.Shorten(err.Error(), csiclient.MaxWords)
	if !definitive(err, secretsKnown) {
		s.refusals = 0
		return
	}
	if s.refusals++; s.refusals == 1 {
		s.refused = now
	}
}

// hopeless reports whether the volume is not to be detached any more: the driver has given
// definitive answers for stuckAfter, all of them in a session that is as old, or for
// longer than a driver can need to find its nodes.
func (s unownedState) hopeless(stuckAfter time.Duration, session, now time.Time) bool {
	if s.refusals < refusalsToGiveUp {
		return false
	}
	refused := now.Sub(s.refused)
	return refused >= stuckAfter && now.Sub(session) >= stuckAfter || refused >= witnessedFor
}

// withholds reports whether a PersistentVolume keeps its finalizer because of this: not for
// ever, if the volume cannot be detached or its driver is away.
func (s unownedState) withholds(stuckAfter time.Duration, now time.Time) bool {
	return now.Sub(s.since) < stuckAfter
}

// unownedFailed takes in that the detach of a volume that was left attached has failed, and
// returns how it goes.
func (d *driver) unownedFailed(r *record, err error, now time.Time) unownedState {
	s := d.ledger.unownedFailed(r, err, now)
	d.events.failed(r.gone(), attach.Detaching, err)
	d.tally.failedWith(err, status.Failure{Time: now, Operation: status.Detach, VolumeAttachment: r.attachment, Text: s.last}, now.Sub(s.since))
	return s
}

// gone stands for the VolumeAttachment that a record is of, in an Event.
func (r *record) gone() *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: r.attachment, UID: r.uid}}
}

// unownedFailed notes that the detach of a volume that was left attached has failed, and
// returns how it goes.
func (l *ledger) unownedFailed(r *record, err error, now time.Time) unownedState {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.unowned.failed(err, r.progress.SecretKnown(), now)
	return r.unowned
}

// unownedWaits notes why a volume that was left attached is not detached now, and returns for how
// long that has been so.
func (l *ledger) unownedWaits(r *record, why error, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &r.unowned
	if s.waits.IsZero() {
		s.waits = now
	}
	s.last = csiclient.Shorten(why.Error(), csiclient.MaxWords)
	return now.Sub(s.waits)
}

// withheld reports whether a PersistentVolume must keep its finalizer because its volume may
// have been left attached.
func (l *ledger) withheld(volumeHandle string, stuckAfter time.Duration, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.left.in(volumeHandle) {
		if l.orphans[name].unowned.withholds(stuckAfter, now) {
			return true
		}
	}
	return false
}

// unownedViews returns what was left attached, the oldest first, with the key of the work on each.
func (l *ledger) unownedViews() ([]status.UnownedPublication, []workKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	type view struct {
		status.UnownedPublication
		key workKey
	}
	var views []view
	for name, r := range l.orphans {
		views = append(views, view{status.UnownedPublication{
			VolumeHandle:     r.unowned.target.VolumeHandle,
			NodeID:           r.unowned.target.NodeID,
			Node:             r.node,
			PersistentVolume: r.volume,
			VolumeAttachment: r.attachment,
			Since:            r.unowned.since,
			Tries:            r.unowned.failures,
			LastError:        r.unowned.last,
		}, workKey{orphanWork, name}})
	}
	for name := range l.vanished.of { // no worker could look yet
		if r := l.records[name]; r != nil && r.told.MayBeAttached() {
			views = append(views, view{status.UnownedPublication{
				VolumeHandle: r.told.Target.VolumeHandle, NodeID: r.told.Target.NodeID, Node: r.node, PersistentVolume: r.volume,
				VolumeAttachment: r.attachment, Since: r.vanished,
			}, workKey{attachmentWork, name}})
		}
	}
	slices.SortFunc(views, func(a, b view) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.key.name, b.key.name))
	})
	all, keys := make([]status.UnownedPublication, len(views)), make([]workKey, len(views))
	for i, v := range views {
		all[i], keys[i] = v.UnownedPublication, v.key
	}
	return all, keys
}

// giveUp forgets a volume that was left attached and that the driver does not know there.
func (d *driver) giveUp(r *record, key workKey, s unownedState) {
	target := s.target
	d.logger.Info("Gave up to detach a volume: the driver does not know it there", "volumeHandle", target.VolumeHandle, "nodeID", target.NodeID,
		"node", r.node, "volumeAttachment", r.attachment, "tries", s.failures, "lastError", s.last)
	d.events.gaveUp(r, s)
	d.tally.metrics.GaveUp()
	d.ledger.buried(key, r)
}

// sinceConnected is when the session of the moment began.
func (d *driver) sinceConnected() time.Time {
	if s := d.connection.session.Load(); s != nil {
		return s.since
	}
	return time.Now()
}

// unowned returns what was left attached and is still to be detached, and how much that is.
func (d *driver) unowned() ([]status.UnownedPublication, int) {
	all, keys := d.ledger.unownedViews()
	shown := all[:min(len(all), status.MostUnowned)]
	for i := range shown {
		if item, ok := d.queue.look(keys[i]); ok && item.state == delayed {
			shown[i].NextTry = item.due
		}
	}
	return shown, len(all)
}
