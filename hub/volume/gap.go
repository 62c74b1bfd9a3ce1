package volume

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// While another process has the lease, it may detach what is unowned here.

const (
	// unconfirmedFor is how long an unowned publication is kept that another process has to detach: longer than
	// an outage of a storage system.
	unconfirmedFor = 24 * time.Hour
	// sweepEvery is the shortest time between two calls of dropUnconfirmed by ObserveDeletion: each looks at
	// all volumes.
	sweepEvery = time.Minute
)

// Forget drops the claims: another process may have worked for their VolumeAttachments since. It keeps unowned
// publications, because no other process knows of them; the VolumeAttachments that may own one are read before
// its detach. It is called before Begin.
func (t *Table) Forget(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Queue.CloseLocked() // the term before
	for _, c := range t.claims {
		if !c.gone.IsZero() && c.publication.MayBePublished() { // the lease was lost before its worker had ended
			t.disown(c.Identity, c.publication).Unconfirmed = now
		}
	}
	clear(t.claims)
	clear(t.released)
	t.dropUnconfirmed(now)
	for u := range t.eachUnowned() {
		u.Gap = t.closed
	}
}

// ObserveDeletion notes the publication of a VolumeAttachment that vanished while another process worked for the
// driver: that process may end before it detaches the volume.
func (t *Table) ObserveDeletion(id Identity, last attach.Record, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.swept) >= sweepEvery {
		t.dropUnconfirmed(now)
	}
	if u := t.unowned(last.Target); u != nil {
		u.timesDisowned++
	} else {
		t.disown(id, Publication{Record: last, Belief: Recorded}).Unconfirmed = now
	}
}

// ObserveDetach ends an unowned publication because another process has detached the volume at that
// target, for the VolumeAttachment with the uid. A publication that this process itself has disowned for that
// VolumeAttachment stays unowned.
func (t *Table) ObserveDetach(target attach.Target, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.unowned(target); u != nil && (!u.Unconfirmed.IsZero() || !t.closed.IsZero() && uid != u.FormerOwner.UID) {
		t.resolve(target)
	}
}

// dropUnconfirmed drops unowned publications that another process must have detached by now.
func (t *Table) dropUnconfirmed(now time.Time) {
	t.swept = now
	for u := range t.eachUnowned() {
		if !u.Unconfirmed.IsZero() && now.Sub(u.Unconfirmed) > unconfirmedFor {
			t.resolve(u.Target)
		}
	}
}

// Confirm makes this process responsible for all unowned publications, and asks for their detach.
func (t *Table) Confirm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for u := range t.eachUnowned() {
		u.Unconfirmed, u.Gap = time.Time{}, time.Time{}
		t.Queue.RenewLocked(u.Key(), queue.DetachLane, u.place())
	}
}
