package hub

import (
	"fmt"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

func TestDueWorkIsCountedByOperationWithTheOldest(t *testing.T) {
	now := time.Unix(1700000000, 0)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	attaching := func(d time.Duration) *storagev1.VolumeAttachment {
		return routedAttachment(func(va *storagev1.VolumeAttachment) { va.CreationTimestamp = ago(d) })
	}
	detaching := routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) {
		deleted := ago(time.Minute)
		va.CreationTimestamp, va.DeletionTimestamp = ago(time.Hour), &deleted
	})
	attached := routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) { va.CreationTimestamp = ago(time.Hour) })
	vas := []*storagev1.VolumeAttachment{attaching(time.Minute), attached, attaching(20 * time.Minute), detaching, attaching(15 * time.Minute)}
	due := countDue(attach.Driver{Name: routedDriver}, vas, 15*time.Minute, now)
	want := map[status.Operation]dueWork{
		status.Attach: {count: 3, since: now.Add(-20 * time.Minute), stuck: 2},
		status.Detach: {count: 1, since: now.Add(-time.Minute)},
	}
	if len(due) != len(want) || due[status.Attach] != want[status.Attach] || due[status.Detach] != want[status.Detach] {
		t.Errorf("got %+v, want %+v", due, want)
	}
	if due := countDue(attach.Driver{Name: routedDriver, NoAttach: true}, vas[:1], 15*time.Minute, now); len(due) > 0 {
		t.Errorf("got %+v of a driver that needs no attacher", due)
	}
}

func TestLastCallableTimeSurvivesAPanic(t *testing.T) {
	m := routed(t).manager
	m.setUp(true, func(*driverState) {})
	m.setUp(false, func(*driverState) {})
	want := m.get().downSince
	m.setUp(false, func(*driverState) {})
	m.update((*driverState).restart)
	if got := m.view(nil, time.Now()); !got.DownSince.Equal(want) || want.IsZero() {
		t.Errorf("down since %s, want %s", got.DownSince, want)
	}
}

// The largest drivers have a hundred thousand VolumeAttachments, of which none may be due.
func BenchmarkCountDueWork(b *testing.B) {
	vas := make([]*storagev1.VolumeAttachment, 100_000)
	for i := range vas {
		vas[i] = writtenAttachment(fmt.Sprintf("pvc-%032d", i), routedDriver, "node-0")
	}
	decider := attach.Driver{Name: routedDriver}
	b.ReportAllocs()
	for b.Loop() {
		if due := countDue(decider, vas, time.Minute, time.Now()); len(due) > 0 {
			b.Fatalf("%+v", due)
		}
	}
}
