package volume

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// While another process has the lease, it may see to what this one has left unowned.

// sweepEvery is how often Observe drops what is unconfirmed for too long: that looks at all volumes.
const sweepEvery = time.Minute

// Forget drops what is known of VolumeAttachments that another process has worked for since. Unowned
// publications are known to nobody else, and are kept: before one is detached, the
// VolumeAttachments that may own it are read. It is called before Begin.
func (t *Table) Forget(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropEntries() // of the term before
	for _, c := range t.claims {
		if !c.gone.IsZero() && c.publication.MayBePublished() { // the lease was lost before its worker had ended
			t.leave(c.Identity, c.publication).Unconfirmed = now
		}
	}
	clear(t.claims)
	clear(t.released)
	t.forgetUnconfirmed(now)
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			u.Gap = t.closed
		}
	}
}

// Unconfirm ends an unowned publication that another process has seen to: it was seen to detach the
// volume, for the VolumeAttachment with the uid. What that VolumeAttachment left itself stays unowned.
func (t *Table) Unconfirm(target attach.Target, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.unowned(target); u != nil && (!u.Unconfirmed.IsZero() || !t.closed.IsZero() && uid != u.Left.UID) {
		t.resolve(target)
	}
}

// Observe notes what a VolumeAttachment has left published that vanished while another process worked
// for the driver: that process may not get to see to it.
func (t *Table) Observe(id Identity, last attach.Record, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.swept) >= sweepEvery {
		t.forgetUnconfirmed(now)
	}
	if u := t.unowned(last.Target); u != nil {
		u.times++
	} else {
		t.leave(id, Publication{Record: last, Belief: Recorded}).Unconfirmed = now
	}
}

// forgetUnconfirmed drops unowned publications that another process must have seen to by now.
func (t *Table) forgetUnconfirmed(now time.Time) {
	t.swept = now
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			if !u.Unconfirmed.IsZero() && now.Sub(u.Unconfirmed) > unconfirmedFor {
				t.resolve(u.Target)
			}
		}
	}
}

// Confirm makes all unowned publications this process' to see to, and asks for their detach.
func (t *Table) Confirm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			u.Unconfirmed, u.Gap = time.Time{}, time.Time{}
			t.add(u.Key(), DetachLane, u.place())
		}
	}
}
