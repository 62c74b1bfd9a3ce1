package tests

import (
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// attachedByAnother has another replica of the hub attach a VolumeAttachment to node n, whose node ID is id-n.
func (v *virtual) attachedByAnother(va testbed.VolumeAttachment) {
	v.t.Helper()
	finalizers := []string{attach.Finalizer(virtualDriver)}
	pv, err := v.kube.CoreV1().PersistentVolumes().Get(v.t.Context(), va.PersistentVolume, metav1.GetOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	pv.Finalizers = finalizers
	if _, err := v.kube.CoreV1().PersistentVolumes().Update(v.t.Context(), pv, metav1.UpdateOptions{}); err != nil {
		v.t.Fatal(err)
	}
	object := v.get(va.Name)
	object.Finalizers = finalizers
	object.Annotations = map[string]string{attach.AnnotationNodeID: "id-n", attach.AnnotationVolumeHandle: va.PersistentVolume}
	if object, err = v.kube.StorageV1().VolumeAttachments().Update(v.t.Context(), object, metav1.UpdateOptions{}); err != nil {
		v.t.Fatal(err)
	}
	object.Status.Attached = true
	if _, err := v.kube.StorageV1().VolumeAttachments().UpdateStatus(v.t.Context(), object, metav1.UpdateOptions{}); err != nil {
		v.t.Fatal(err)
	}
	v.turn(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: va.PersistentVolume, Node: "id-n"}}})
}

// requestsSince are the requests that were made after some others, those about leases left out.
func (v *virtual) requestsSince(before map[fakekube.Request]int) map[fakekube.Request]int {
	since := maps.Clone(v.api.Requests())
	for r, n := range before {
		since[r] -= n
	}
	maps.DeleteFunc(since, func(r fakekube.Request, n int) bool { return n == 0 || r.Resource == "leases" })
	return since
}

// Rule: a restart or takeover reads, calls and writes nothing for what is attached. The one read is of how far the
// VolumeAttachments have come.
func TestTakeoverReadsCallsAndWritesNothingForWhatIsAttached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		release := v.holdLease("another")
		v.register("n", "id-n")
		for i := range 50 {
			name := fmt.Sprint("v", i)
			v.volume(name)
			v.create(v.attachment(name, "n"))
			v.attachedByAnother(v.attachment(name, "n"))
		}
		v.start()
		v.pass(time.Minute)
		before := v.api.Requests()
		release()
		v.pass(time.Hour)
		if d := v.hub.Drivers()[0]; !d.Lease.Mine {
			t.Fatalf("the driver was not taken over: %+v", d)
		}
		if got := v.requestsSince(before); len(got) > 0 {
			t.Errorf("requests %v, want none", got)
		}
		books := v.backend.Books()
		if n := books.Methods[fakecsi.ControllerPublishVolume].Begun + books.Methods[fakecsi.ControllerUnpublishVolume].Begun; n > 0 {
			t.Errorf("%d calls, want none", n)
		}
	})
}

// Rule: a takeover reads anew what is from before its term, and nothing else.
func TestTakeoverReadsAnewWhatIsOlder(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		release := v.holdLease("another")
		v.register("n", "id-n")
		v.volume("old")
		old := v.attachment("old", "n")
		v.create(old)
		v.start()
		v.pass(time.Minute)

		v.api.HoldWatches("volumeattachments") // the other one attaches it, and the cache does not show that yet
		v.attachedByAnother(old)
		before := v.api.Requests()
		release()
		v.pass(time.Minute)
		want := map[fakekube.Request]int{{Verb: "get", Resource: "volumeattachments", Name: old.Name}: 1}
		if got := v.requestsSince(before); !maps.Equal(got, want) {
			t.Errorf("requests %v, want %v", got, want)
		}
		if n := v.calls(fakecsi.ControllerPublishVolume, "old", "id-n"); n > 0 {
			t.Errorf("%d calls to attach what is attached", n)
		}
		v.api.ReleaseWatches("volumeattachments")
		v.pass(time.Minute)

		before = v.api.Requests()
		v.volume("young")
		young := v.attachment("young", "n")
		v.create(young)
		v.pass(time.Minute)
		if got := v.get(young.Name); !got.Status.Attached {
			t.Errorf("%+v, want it attached", got.Status)
		}
		reads := v.requestsSince(before)[fakekube.Request{Verb: "get", Resource: "volumeattachments", Name: young.Name}]
		if reads != 1 { // the test's own
			t.Errorf("%d reads of what is younger than the term", reads-1)
		}

		// What the one before has attached is known by now: its PersistentVolume can go.
		v.delete(old)
		v.pass(time.Second)
		v.delete(testbed.PersistentVolume{Name: "old"})
		v.pass(time.Minute)
		v.api.Bookmark() // the watch says how far it has come
		v.pass(time.Minute)
		if v.get(old.Name) != nil || v.hasVolume("old") {
			t.Errorf("VolumeAttachment there: %v, PersistentVolume there: %v; want both gone", v.get(old.Name) != nil, v.hasVolume("old"))
		}
	})
}

// writtenByAnother makes a VolumeAttachment that another replica of the hub has attached at a node ID.
func (v *virtual) writtenByAnother(va testbed.VolumeAttachment, nodeID string) {
	v.t.Helper()
	object := va.Build()
	object.Finalizers, object.Status.Attached = []string{attach.Finalizer(virtualDriver)}, true
	object.Annotations = map[string]string{attach.AnnotationNodeID: nodeID, attach.AnnotationVolumeHandle: va.PersistentVolume}
	if _, err := v.kube.StorageV1().VolumeAttachments().Create(v.t.Context(), object, metav1.CreateOptions{}); err != nil {
		v.t.Fatal(err)
	}
}

// stealLease has another process hold the driver's lease that the hub has, until it is released.
func (v *virtual) stealLease(identity string) (release func()) {
	v.t.Helper()
	name := registry.LeaseName(virtualDriver)
	if err := v.kube.CoordinationV1().Leases("hub").Delete(v.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		v.t.Fatal(err)
	}
	release = v.holdLease(identity)
	v.pass(time.Minute)
	if d := v.hub.Drivers()[0]; d.Lease.Mine {
		v.t.Fatalf("the hub has not lost the lease: %+v", d.Lease)
	}
	return release
}
