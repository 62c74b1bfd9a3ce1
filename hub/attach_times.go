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
// driver is part of it. Repairs are not counted, nobody has asked for them.
type attachTimes struct {
	metrics *status.DriverMetrics

	mu   sync.Mutex
	late map[types.UID]bool // counted by stillWait, or attached as late as that; guarded by mu
}

// attached counts a VolumeAttachment that an attach has just succeeded for. va is its state before.
func (t *attachTimes) attached(va *storagev1.VolumeAttachment, now time.Time) {
	since := wantedSince(va, attach.Attaching)
	if since.IsZero() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.late[va.UID] {
		t.metrics.Attach(max(0, now.Sub(since))) // the clock of the API server may be ahead
	}
	if isLate(since, now) {
		t.mark(va.UID) // stillWait may have seen it before it was attached
	}
}

// stillWait counts those VolumeAttachments that wait for longer than any objective. waiting has all that wait for
// their attach, by UID, with the time of their creation.
func (t *attachTimes) stillWait(waiting map[types.UID]time.Time, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid := range t.late {
		if _, ok := waiting[uid]; !ok {
			delete(t.late, uid)
		}
	}
	for uid, since := range waiting {
		if isLate(since, now) && !t.late[uid] {
			t.metrics.Attach(now.Sub(since))
			t.mark(uid)
		}
	}
}

// mark must be called with mu held.
func (t *attachTimes) mark(uid types.UID) {
	if t.late == nil {
		t.late = map[types.UID]bool{}
	}
	t.late[uid] = true
}

func isLate(since, now time.Time) bool { return now.Sub(since) > status.LongestObjective }
