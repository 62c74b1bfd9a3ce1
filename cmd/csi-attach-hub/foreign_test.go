package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// patchAs changes a VolumeAttachment as another attacher, by the name of its field manager.
func (r *rivals) patchAs(manager, name, patch string, subresources ...string) {
	r.t.Helper()
	_, err := r.plane.Clientset().StorageV1().VolumeAttachments().Patch(r.ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: manager}, subresources...)
	if err != nil {
		r.t.Fatal(err)
	}
}

// attachAs does to a VolumeAttachment what csi-attacher does.
func (r *rivals) attachAs(manager, name, node string) {
	r.t.Helper()
	r.patchAs(manager, name, fmt.Sprintf(`{"metadata":{"finalizers":[%q],"annotations":{%q:%q}}}`, attach.Finalizer(r.driver), attach.AnnotationNodeID, "id-"+node))
	r.patchAs(manager, name, `{"status":{"attached":true}}`, "status")
}

// metric returns the value of a metric of the driver, "" if there is none.
func (r *rivals) metric(name string) string {
	r.t.Helper()
	response, err := http.Get("http://" + r.address + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("%s{driver=%q} ", name, r.driver)); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// volumes makes volumes of the driver and returns what attaches them to a node.
func (r *rivals) volumes(node string, n int) (attachments []testbed.VolumeAttachment) {
	r.t.Helper()
	for i := range n {
		name := fmt.Sprintf("%s-v%d", r.prefix, i)
		r.create(testbed.PersistentVolume{Name: name, Driver: r.driver})
		attachments = append(attachments, testbed.VolumeAttachment{Name: name, Driver: r.driver, Node: node, PersistentVolume: name})
	}
	return attachments
}

func TestAnotherAttacherAtWorkIsReportedAndTheDriverIsServedOn(t *testing.T) {
	r := newRivals(t, "foreign", "mode: active", 0)
	r.knowHub()
	all := r.volumes(r.nodes(1)[0], 2)
	r.create(all[0])
	r.waitFor("attached", attachedAtLeast(1))
	r.patchAs("csi-attacher", all[0].Name, `{"status":{"attachError":{"message":"from another","time":"2026-01-01T00:00:00Z"}}}`, "status")
	d := r.waitShown("with the foreign writer", func(d status.Driver) bool { return d.ForeignWriter.VolumeAttachment != "" })
	if w := d.ForeignWriter; w.Manager != "csi-attacher" || w.VolumeAttachment != all[0].Name || d.State != "Ready" {
		t.Errorf("shown as %+v", d)
	}
	logged(r.scene, r.hub, `"Another attacher writes VolumeAttachments of the driver, which this hub serves" driver="`+r.driver+`" volumeAttachment="`+all[0].Name)
	logged(r.scene, r.hub, `manager="csi-attacher"`)
	if got := r.metric("attach_hub_foreign_writer_total"); got != "1" {
		t.Errorf("attach_hub_foreign_writer_total is %q, want 1", got)
	}
	r.create(all[1]) // and it goes on
	r.waitFor("another one attached", attachedAtLeast(2))

	r.checkExit(r.hub)
}

func TestThePredecessorsOwnWritesAreNotReported(t *testing.T) {
	const n = 20
	r := newRivals(t, "predecessor", "mode: paused", 0)
	sidecar, hour, now := "attacher-0", int32(3600), metav1.NewMicroTime(time.Now())
	leases := r.plane.Clientset().CoordinationV1().Leases("default")
	held, err := leases.Create(r.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "external-attacher-leader-" + r.driver},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &sidecar, LeaseDurationSeconds: &hour, AcquireTime: &now, RenewTime: &now}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node := r.nodes(1)[0]
	all := r.volumes(node, n)
	r.settle("mode: active")
	r.waitShown("waiting for the lease", func(d status.Driver) bool { return strings.Contains(d.Reason, "held by "+sidecar) })
	// The sidecar attaches half of them, is at it with the others, and ends.
	var objects []testbed.Object
	for i, va := range all {
		r.create(va)
		objects = append(objects, va)
		if i%2 == 0 {
			r.attachAs("csi-attacher", va.Name, node)
		} else {
			r.patchAs("csi-attacher", va.Name, `{"status":{"attachError":{"message":"not yet","time":"2026-01-01T00:00:00Z"}}}`, "status")
		}
	}
	nobody := ""
	held.Spec.HolderIdentity = &nobody
	if _, err := leases.Update(r.ctx, held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.waitFor("all attached", testbed.AllAttached(n))
	r.delete(objects...)
	r.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	d := r.waitShown("served", func(status.Driver) bool { return true })
	if d.State != "Ready" || d.ForeignWriter.VolumeAttachment != "" {
		t.Errorf("shown as %+v", d)
	}
	if got := r.metric("attach_hub_foreign_writer_total"); got != "0" {
		t.Errorf("attach_hub_foreign_writer_total is %q, want 0", got)
	}
	r.checkSafe()
	r.checkExit(r.hub)
}
