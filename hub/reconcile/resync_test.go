package reconcile

import (
	"fmt"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// Events are for speed: what they miss must not wait for ever.
func TestResyncFindsWorkThatNoEventHasLedTo(t *testing.T) {
	d := routed(t)
	deleted := func(va *storagev1.VolumeAttachment) {
		va.Name, va.UID, va.DeletionTimestamp = "deleted", "uid-2", &metav1.Time{Time: time.Now()}
	}
	must(t, cachetest.Put(d.Cluster, routedAttachment(), routedAttachment(guardedAttachment, deleted)))
	vanished := routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) { va.Name = "vanished" })
	d.restore(d.Table.Open(vanished), vanished)
	d.Resync()
	for name, l := range map[string]queue.Lane{"va": queue.AttachLane, "deleted": queue.DetachLane} {
		if v, ok := d.Queue.Look(queue.AttachmentKey(name)); !ok || v.Lane != l {
			t.Errorf("%s: there is work: %v, in lane %s, want it in %s", name, ok, v.Lane, l)
		}
	}
	left := attach.Target{VolumeHandle: "handle", NodeID: "id"}
	if _, ok := d.Table.Dangling(left); !ok {
		t.Error("what the VolumeAttachment that has vanished left attached is not detached")
	}
	d.Queue.Open()
	for e := d.start(t); e != nil; e = d.start(t) { // a worker forgets to detach it
		if e.Key.Kind != queue.DanglingKind {
			d.Queue.End(e, queue.RequeueAfter(e.Lane, time.Hour))
			continue
		}
		d.Queue.End(e, queue.Finished)
		break
	}
	d.Resync()
	if key := (&volume.Dangling{Publication: volume.Publication{Record: attach.Record{Target: left}}}).Key(); !d.Queue.Has(key) {
		t.Error("what was left attached has no entry")
	}
	before, _ := d.Queue.Look(queue.AttachmentKey("va"))
	d.Resync()
	if now, _ := d.Queue.Look(queue.AttachmentKey("va")); now.Required != before.Required {
		t.Error("what is in the queue was asked for anew")
	}
}

// At each connection. The look took 13 s, in which nothing of the driver could start.
func TestVolumeAttachmentsAreNotLookedThroughForEachDanglingPublication(t *testing.T) {
	d := routed(t)
	for i := range 10 {
		must(t, cachetest.Put(d.Cluster, routedAttachment(func(va *storagev1.VolumeAttachment) { va.Name = fmt.Sprint("va-", i) })))
	}
	for i := range 1000 {
		id := volume.Identity{Name: fmt.Sprint("gone-", i), UID: "uid-2"}
		d.Table.Gone(id, &attach.Record{Target: attach.Target{VolumeHandle: id.Name, NodeID: "id"}, Nodes: attach.SingleNode}, false)
	}
	if n := testing.AllocsPerRun(1, d.confirm); n >= 1000 { // a look makes a list
		t.Errorf("%v allocations for 1,000 dangling publications", n)
	}
}
