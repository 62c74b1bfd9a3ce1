package view

import (
	"fmt"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// standby returns a driver "d" for which this process does not work, in a cluster with VolumeAttachments.
func standby(t testing.TB, vas ...*storagev1.VolumeAttachment) (*View, Driver) {
	t.Helper()
	cluster := cache.New(fake.NewClientset())
	for _, va := range vas {
		if err := cachetest.Put(cluster, va); err != nil {
			t.Fatal(err)
		}
	}
	return &View{Cluster: cluster}, Driver{Driver: status.Driver{Name: "d"}, Decider: attach.Driver{Name: "d"},
		Spec: registry.Driver{Settings: registry.Settings{StuckAfter: 15 * time.Minute}}, Table: volume.NewTable("f"), Overlay: cache.NewOverlay(klog.Background(), cluster)}
}

func attachmentOf(name string, edits ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	volume := "pv-" + name
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{attach.Finalizer("d")}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
	for _, edit := range edits {
		edit(va)
	}
	return va
}

func TestDueWorkIsCountedByOperationWithTheOldest(t *testing.T) {
	now := time.Unix(1700000000, 0)
	created := func(d time.Duration) func(*storagev1.VolumeAttachment) {
		return func(va *storagev1.VolumeAttachment) { va.CreationTimestamp = metav1.NewTime(now.Add(-d)) }
	}
	attached := func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }
	deleted := func(va *storagev1.VolumeAttachment) {
		at := metav1.NewTime(now.Add(-time.Minute))
		va.DeletionTimestamp = &at
	}
	v, d := standby(t, attachmentOf("a", created(time.Minute)), attachmentOf("b", created(time.Hour), attached), attachmentOf("c", created(20*time.Minute)),
		attachmentOf("d", created(time.Hour), attached, deleted), attachmentOf("e", created(15*time.Minute)))
	d.Lanes = v.lanes(&d, now)
	long := now.Add(-20 * time.Minute)
	for _, want := range []status.Lane{
		{Operation: status.Attach, Queued: 3, OldestSince: long, Stuck: 2, StuckSince: long},
		{Operation: status.Detach, Queued: 1, OldestSince: now.Add(-time.Minute)},
		{Operation: status.Drift},
	} {
		if got := d.Lane(want.Operation); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	d.isServedElsewhere = true
	d.Lanes = v.lanes(&d, now)
	if work := d.Work(); work != (status.Lane{Queued: 2, OldestSince: long, Stuck: 2, StuckSince: long}) {
		t.Errorf("got %+v of a driver for which another replica works, want what is stuck", work)
	}
	d.isServedElsewhere, d.Decider.NoAttach = false, true
	d.Lanes = v.lanes(&d, now)
	if got := d.Lane(status.Attach); got != (status.Lane{Operation: status.Attach}) {
		t.Errorf("got %+v of a driver that needs no attacher", got)
	}
}

// Each volume is waiting, failing or stuck in all views, also while its next try runs.
func TestFailingAndStuckVolumesAreCountedAsTheirStatesSay(t *testing.T) {
	now := time.Now()
	created := func(since time.Duration) func(*storagev1.VolumeAttachment) {
		return func(va *storagev1.VolumeAttachment) { va.CreationTimestamp = metav1.NewTime(now.Add(-since)) }
	}
	v, d := standby(t, attachmentOf("first", created(time.Minute)), attachmentOf("again", created(time.Minute)), attachmentOf("pauses", created(time.Minute)),
		attachmentOf("stuck", created(time.Hour)), attachmentOf("waits", created(time.Minute)))
	d.Leads, d.Up, d.State, d.Decider.Capabilities.PublishUnpublish = true, true, status.StateReady, true
	d.Spec.Mode = registry.ModeActive
	q := d.Table.Queue
	q.SetLimits(queue.Limits{Workers: 4})
	q.Begin()
	q.Open()
	run := func(name string, failed bool) *queue.Item {
		q.Add(queue.AttachmentKey(name), queue.AttachLane, queue.Destination{Target: attach.Target{VolumeHandle: name, NodeID: "n"}})
		e, _ := q.Start(now)
		if e == nil || e.Key.Name != name {
			t.Fatalf("%+v starts, not %s", e, name)
		}
		if failed {
			q.Failed(e, attach.Attaching, "no", diagnosis.Cause{})
		}
		return e
	}
	q.End(run("stuck", true), queue.BackOff(queue.AttachLane, time.Hour))
	q.End(run("pauses", true), queue.BackOff(queue.AttachLane, time.Hour))
	run("first", false)
	run("again", true)
	target := attach.Target{VolumeHandle: "dangling", NodeID: "n"}
	q.Add(queue.DanglingKey(target), queue.DetachLane, queue.Destination{Target: target})
	dangling, _ := q.Start(now) // counts as dangling only
	q.Failed(dangling, attach.Detaching, "no", diagnosis.Cause{})
	q.End(dangling, queue.BackOff(queue.DetachLane, time.Hour))
	q.Add(queue.AttachmentKey("waits"), queue.AttachLane, queue.Destination{})
	v.Served = func() map[string]func() Driver { return map[string]func() Driver{"d": func() Driver { return d }} }
	want := map[string]status.AttachmentState{"first": status.Attaching, "again": status.Failing, "pauses": status.Failing, "stuck": status.Stuck, "waits": status.Waiting}
	for _, a := range v.Attachments(status.AttachmentFilter{}) {
		if a.State != want[a.Name] {
			t.Errorf("%s is %s, want %s", a.Name, a.State, want[a.Name])
		}
	}
	if got := (v.Drivers()[0]).Work(); got.Failing != 2 || got.Stuck != 1 || got.Running != 2 {
		t.Errorf("got %+v, want 2 that fail and 1 that is stuck", got)
	}
}

// The largest drivers have a hundred thousand VolumeAttachments, of which none may be due.
func BenchmarkLanesOfAStandby(b *testing.B) {
	vas := make([]*storagev1.VolumeAttachment, 100_000)
	for i := range vas {
		vas[i] = attachmentOf(fmt.Sprintf("pvc-%032d", i), func(va *storagev1.VolumeAttachment) { va.Status.Attached = true })
	}
	v, d := standby(b, vas...)
	b.ReportAllocs()
	for b.Loop() {
		if d.Lanes = v.lanes(&d, time.Now()); d.Work() != (status.Lane{}) {
			b.Fatalf("%+v", d.Work())
		}
	}
}
