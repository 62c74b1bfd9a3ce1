package hub

import (
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// attachTimes counts each attach of a driver that a client has asked for once, with its time: when it is done, or
// when it still waits after status.LongestObjective. Otherwise an outage in which no attach ends would look like a
// time in which no attach is asked for.
//
// The time is that since the creation of the VolumeAttachment: the time during which no replica worked for the
// driver is part of it. Repairs are not counted, nobody has asked for them, nor is an attach that another client has
// undone.
type attachTimes struct {
	metrics *status.DriverMetrics

	mu   sync.Mutex
	from time.Time          // another process may have counted what was late before; guarded by mu
	late map[types.UID]bool // counted by stillWait, or attached as late as that; guarded by mu
}

func newAttachTimes(metrics *status.DriverMetrics) *attachTimes {
	return &attachTimes{metrics: metrics, from: time.Now(), late: map[types.UID]bool{}}
}

// takeOver begins a term after that of another process, which has last held the lease at a time. If that is not known,
// nobody was there to count until now.
func (t *attachTimes) takeOver(former time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from = time.Now(); !former.IsZero() && former.Before(t.from) {
		t.from = former
	}
}

// attached counts a VolumeAttachment that an attach has just succeeded for. va is its state before.
func (t *attachTimes) attached(va *storagev1.VolumeAttachment, now time.Time) {
	since := firstAskedFor(va, attach.Attaching)
	if since.IsZero() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(since) > status.LongestObjective {
		t.countLate(va.UID, since, now) // stillWait may have seen it before it was attached
		return
	}
	t.metrics.Attach(max(0, now.Sub(since))) // the clock of the API server may be ahead
}

// stillWait counts those VolumeAttachments that wait for longer than any objective. waiting has all that wait for
// their first attach, by UID, with the time of their creation.
func (t *attachTimes) stillWait(waiting map[types.UID]time.Time, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid := range t.late {
		if _, ok := waiting[uid]; !ok {
			delete(t.late, uid)
		}
	}
	for uid, since := range waiting {
		if now.Sub(since) > status.LongestObjective {
			t.countLate(uid, since, now)
		}
	}
}

// countLate counts a VolumeAttachment unless it is counted. It must be called with mu held.
func (t *attachTimes) countLate(uid types.UID, since, now time.Time) {
	if !t.late[uid] && since.Add(status.LongestObjective).After(t.from) {
		t.metrics.Attach(now.Sub(since))
	}
	t.late[uid] = true
}
