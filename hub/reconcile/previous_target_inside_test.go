package reconcile

import (
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// moveOn has a VolumeAttachment leave what it has published at routedTarget, for another target.
func (d *routedWorker) moveOn(t *testing.T, c *volume.Attachment) {
	t.Helper()
	run := volume.Run{Plan: attach.Plan{Operation: attach.Attaching, Record: attach.Record{Target: attach.Target{VolumeHandle: "handle", NodeID: "id-new"}}}}
	for _, kind := range []volume.EffectKind{volume.FindOwners, volume.Disown} {
		effect := d.Table.NextEffect(c, run)
		if effect != (volume.Effect{Kind: kind, Target: routedTarget}) {
			t.Fatalf("the next effect is %+v, want %d", effect, kind)
		}
		d.Table.Start(c, run, effect)
		d.Table.Apply(c, &run, effect, volume.Outcome{Owner: volume.Unclear})
	}
}

// The node went back to its old ID: the volume was detached there right after it had been attached again.
func TestPreviousTargetThatIsClaimedAgainIsNotDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, session := routedOn(t, kubeOn(t, answers{})), &recording{}
		d.connectTo(session)
		va := routedAttachment(guardedAttachment)
		d.Queue.Add(queue.AttachmentKey(va.Name), queue.AttachLane, queue.Destination{Target: routedTarget})
		attaching := d.start(t)
		c := d.Table.Open(va)
		d.restore(c, va)
		d.moveOn(t, c)
		if e := d.start(t); e != nil {
			t.Errorf("%v starts beside a call for the volume", e.Key)
		}
		run := volume.Run{Plan: attach.Plan{Operation: attach.Attaching, Record: attach.Record{Target: routedTarget}}}
		d.Table.Start(c, run, volume.Effect{Kind: volume.Publish, Target: routedTarget})
		d.Queue.End(attaching, queue.Finished)
		if e := d.start(t); e != nil {
			d.Work(t.Context(), e)
		}
		if _, dangling := d.Table.Dangling(routedTarget); len(session.calls) != 0 || dangling || len(c.Disowned) > 0 {
			t.Errorf("%d calls, dangling %v, left %v; want nothing left of it", len(session.calls), dangling, c.Disowned)
		}
	})
}

func TestPublicationThatIsResolvedBeforeItsWorkerLooksIsNotDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, session := routedOn(t, kubeOn(t, answers{})), &recording{}
		d.connectTo(session)
		va := routedAttachment(guardedAttachment)
		d.restore(d.Table.Open(va), va)
		d.Table.Missing(va.Name, va.UID)
		e := d.start(t)
		u, _ := d.Table.Dangling(routedTarget)
		d.Table.Resolve(u)
		d.Work(t.Context(), e)
		if len(session.calls) != 0 || d.Queue.Has(e.Key) {
			t.Errorf("%d calls, entry %v; want nothing left of it", len(session.calls), d.Queue.Has(e.Key))
		}
	})
}

// It is attached at the previous target until the attach at the new one takes its note.
func TestPreviousTargetWhereTheVolumeIsNotedIsNotDetachedYet(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*storagev1.VolumeAttachment)
		want volume.Ownership
	}{
		"noted and attached":    {func(*storagev1.VolumeAttachment) {}, volume.Unclear},
		"noted, being deleted":  {func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, volume.NoOwner},
		"noted, not attached":   {func(va *storagev1.VolumeAttachment) { va.Status.Attached = false }, volume.NoOwner},
		"noted at the new":      {func(va *storagev1.VolumeAttachment) { va.Annotations[attach.AnnotationNodeID] = "id-new" }, volume.NoOwner},
		"gone, another has one": {func(va *storagev1.VolumeAttachment) { va.UID = "uid-2" }, volume.Owned},
	} {
		t.Run(name, func(t *testing.T) {
			va := routedAttachment(guardedAttachment)
			d := routedOn(t, kubeOn(t, answers{va.Name: routedAttachment(guardedAttachment, c.edit)}))
			d.connectTo(&recording{})
			attachment := d.Table.Open(va)
			d.restore(attachment, va)
			d.moveOn(t, attachment)
			u, _ := d.Table.Dangling(routedTarget)
			if got, err := d.owners(t.Context(), u.FormerOwner, u.Target, false); got != c.want || err != nil {
				t.Errorf("ownership %d, %v, want %d", got, err, c.want)
			}
		})
	}
}

// Another node has a call in flight for the volume: that the detach waits for it was written as an error.
func TestWaitingForOtherCallsAtThePreviousTargetIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: routedDriver, NodeID: "id-new"}}}}
		requests := 0
		d := routedOn(t, kubeOn(t, afterRead{answers{"node": node}, func(string) { requests++ }}))
		d.connectTo(&recording{})
		deleted := func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
		must(t, cachetest.Put(d.Cluster, node, routedAttachment(guardedAttachment, deleted), stored(guardedVolume())))
		d.Queue.Add(queue.AttachmentKey("other"), queue.DetachLane, queue.Destination{Target: attach.Target{VolumeHandle: "handle", NodeID: "id-other"}})
		if d.start(t) == nil {
			t.Fatal("the other does not start")
		}
		d.Queue.Add(queue.AttachmentKey("va"), queue.DetachLane, queue.Destination{}) // its worker finds where it is
		d.workOnAttachment(t.Context(), d.start(t))
		e, _ := d.Queue.Look(queue.AttachmentKey("va"))
		if e.State != queue.Blocked || e.Wait.Kind != queue.WaitVolume || e.Tries != 0 || requests != 1 {
			t.Errorf("%+v after %d requests; want it to wait for the volume after it has read the CSINode", e, requests)
		}
	})
}
