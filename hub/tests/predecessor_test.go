package tests

import (
	"fmt"
	"maps"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestWritesOfThePredecessorThatAreSeenAfterTheTakeoverAreNobodyElses(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	sidecar, hour, now := "attacher-0", int32(3600), metav1.NewMicroTime(time.Now())
	leases := w.plane.Clientset().CoordinationV1().Leases("default")
	held, err := leases.Create(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: registry.LeaseName(driver)},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &sidecar, LeaseDurationSeconds: &hour, AcquireTime: &now, RenewTime: &now}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node := w.node("n", driver)
	va, later := w.volume("v", driver, node), w.volume("later", driver, node)
	w.create(va)
	w.lead("hub-0") // its watch is not the one that is held back
	x := w.tap()
	updates, h := w.run()
	updates <- maps.Clone(w.drivers)
	w.waitShown(h, driver, "waiting", func(d status.Driver) bool { return d.Lease.Holder == sidecar && d.Up })

	x.freeze()
	for _, patch := range []struct{ body, subresource string }{
		{fmt.Sprintf(`{"metadata":{"finalizers":[%q],"annotations":{%q:"id-n"}}}`, attach.Finalizer(driver), attach.AnnotationNodeID), ""},
		{`{"status":{"attached":true}}`, "status"},
	} {
		_, err := w.plane.Clientset().StorageV1().VolumeAttachments().Patch(w.ctx, va.Name, types.MergePatchType, []byte(patch.body),
			metav1.PatchOptions{FieldManager: "csi-attacher"}, patch.subresource)
		if err != nil {
			t.Fatal(err)
		}
	}
	held.Spec.HolderIdentity = new(string)
	if _, err := leases.Update(w.ctx, held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitShown(h, driver, "served", func(d status.Driver) bool { return d.Lease.Mine && d.State == status.StateReady })
	x.thaw()
	w.create(later) // what is seen of it is seen after the rest
	w.waitForOne(later.Name, "attached", isAttached)
	d := w.waitShown(h, driver, "at all", func(status.Driver) bool { return true })
	if d.State != status.StateReady || d.ForeignWriter.VolumeAttachment != "" {
		t.Errorf("shown as %s: %s, foreign writer %+v", d.State, d.Reason, d.ForeignWriter)
	}
	if got := backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun; got != 1 {
		t.Errorf("%d publishes, want 1: the predecessor had attached the other volume", got)
	}
}
