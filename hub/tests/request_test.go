package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// attachment makes a volume with the name as its handle, and returns what attaches it.
func (w *world) attachment(name, driver, node string, pv testbed.PersistentVolume) testbed.VolumeAttachment {
	w.t.Helper()
	pv.Name, pv.Driver, pv.Handle = w.name(name), driver, name
	w.create(pv)
	return testbed.VolumeAttachment{Name: pv.Name, Driver: driver, Node: node, PersistentVolume: pv.Name}
}

func TestReadonlyBlockAndMountGoToTheDriver(t *testing.T) {
	w := newWorld(t)
	can, canBackend := w.driver("can", fakecsi.Options{})
	cannot, cannotBackend := w.driver("cannot", fakecsi.Options{Capabilities: []fakecsi.Capability{fakecsi.ControllerService, fakecsi.PublishUnpublishVolume}})
	node := w.node("n", can, cannot)
	w.start()
	w.create(
		w.attachment("readonly", can, node, testbed.PersistentVolume{ReadOnly: true}),
		w.attachment("suppressed", cannot, node, testbed.PersistentVolume{ReadOnly: true}),
		w.attachment("block", can, node, testbed.PersistentVolume{Block: true, FSType: "xfs", MountFlags: []string{"noatime"}}),
		w.attachment("mount", can, node, testbed.PersistentVolume{FSType: "xfs", MountFlags: []string{"noatime"}, Attributes: map[string]string{"pool": "fast"}}),
	)
	w.waitAllAttached(4)
	if !canBackend.LastPublish("readonly").GetReadonly() || cannotBackend.LastPublish("suppressed").GetReadonly() {
		t.Error("readonly was not asked of the driver that knows it, or was of the one that does not")
	}
	if c := canBackend.LastPublish("block").GetVolumeCapability(); c.GetBlock() == nil {
		t.Errorf("capability %v, want a block device", c)
	}
	r := canBackend.LastPublish("mount")
	if m := r.GetVolumeCapability().GetMount(); m.GetFsType() != "xfs" || !cmp.Equal(m.GetMountFlags(), []string{"noatime"}) || r.GetVolumeContext()["pool"] != "fast" {
		t.Errorf("request %v, want xfs, noatime and the pool", r)
	}
	w.checkBooks(map[string]int{can: 3, cannot: 1})
}

func TestSecretsAreThoseOfTheMomentOfEachTry(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, 10*time.Millisecond)
	w.turn(backend, fakecsi.Knobs{
		Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Volume: "rotated", Code: codes.Unauthenticated, Count: 1}},
		Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume, Volume: "rotated"}},
	})
	x := w.tap()
	node := w.node("n", driver)
	secret, empty := testbed.Secret{Name: w.name("secret"), Data: map[string]string{"key": "old"}}, testbed.Secret{Name: w.name("empty")}
	w.create(secret, empty)
	ref := func(s testbed.Secret) testbed.PersistentVolume {
		return testbed.PersistentVolume{Secret: &corev1.SecretReference{Namespace: "default", Name: s.Name}}
	}
	w.start()
	w.create(w.attachment("rotated", driver, node, ref(secret)))
	w.waitBooks(backend, "the first try is in flight", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	_, err := w.plane.Clientset().CoreV1().Secrets("default").Patch(w.ctx, secret.Name, types.MergePatchType, []byte(`{"stringData":{"key":"new"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitAllAttached(1)
	w.create(w.attachment("empty", driver, node, ref(empty)))
	w.waitAllAttached(2)
	w.create(w.attachment("none", driver, node, testbed.PersistentVolume{}))
	w.waitAllAttached(3)
	want := []map[string]string{{"key": "old"}, {"key": "new"}, {}, nil}
	if diff := cmp.Diff(want, x.secrets()); diff != "" {
		t.Errorf("secrets of the calls (-want +got):\n%s", diff)
	}
}

func TestMissingSecretIsADetachErrorWhereNobodyRemembersIt(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	w.retry(driver, 10*time.Millisecond)
	secret := testbed.Secret{Name: w.name("secret"), Data: map[string]string{"key": "one"}}
	w.create(secret)
	va := w.attachment("v", driver, w.node("n", driver), testbed.PersistentVolume{Secret: &corev1.SecretReference{Namespace: "default", Name: secret.Name}})
	stop := w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	stop()
	w.delete(secret)
	w.delete(va)
	w.start()
	got := w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.DetachError != nil })
	if e := got.Status.DetachError; e.ErrorCode != nil || !strings.Contains(e.Message, "default/"+secret.Name) {
		t.Errorf("detachError %+v, want the missing secret to be named, without a code", e)
	}
	w.create(secret)
	w.waitNoneLeft()
	w.checkBooks(map[string]int{driver: 0})
}

func TestNodeIDThatHasChangedIsNotedBeforeTheCall(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, time.Hour) // only the event can make it try again
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.NotFound, Count: 1}}})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "with an error", hasAttachError)
	if id := got.Annotations[attach.AnnotationNodeID]; id != "id-n" {
		t.Errorf("noted node ID %q, want id-n", id)
	}
	w.renumber(va.Node, "id-new")
	got = w.waitForOne(va.Name, "attached", isAttached)
	if id := got.Annotations[attach.AnnotationNodeID]; id != "id-new" || backend.LastPublish("v").GetNodeId() != "id-new" {
		t.Errorf("noted node ID %q, published to %q, want id-new", id, backend.LastPublish("v").GetNodeId())
	}
}

// renumber has the only driver of a node register there again under another ID.
// Entries of a CSINode cannot be changed, so the old one goes first, as it does when
// the driver is taken from the node.
func (w *world) renumber(node, id string) {
	w.t.Helper()
	nodes := w.plane.Clientset().StorageV1().CSINodes()
	n, err := nodes.Get(w.ctx, node, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	drivers := n.Spec.Drivers
	n.Spec.Drivers = nil
	if n, err = nodes.Update(w.ctx, n, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	drivers[0].NodeID = id
	n.Spec.Drivers = drivers
	if _, err = nodes.Update(w.ctx, n, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func TestDetachAfterARestartNeedsNeitherNodeNorVolume(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	nodeless := w.volume("nodeless", driver, w.node("n1", driver))
	volumeless := w.volume("volumeless", driver, w.node("n2", driver))
	without := w.volume("without", driver, w.node("n3", driver)) // either
	stop := w.start()
	w.create(nodeless, volumeless, without)
	w.waitAllAttached(3)
	stop()
	w.delete(testbed.CSINode{Node: nodeless.Node}, testbed.CSINode{Node: without.Node})
	for _, va := range []testbed.VolumeAttachment{volumeless, without} {
		w.patchVolume(va.Name, `{"metadata":{"finalizers":null}}`)
		w.delete(testbed.PersistentVolume{Name: va.Name})
	}
	w.delete(nodeless, volumeless, without)
	w.start()
	w.waitNoneLeft()
	w.checkBooks(map[string]int{driver: 0})
	for volume, node := range map[string]string{"nodeless": "id-n1", "volumeless": "id-n2", "without": "id-n3"} {
		if got := backend.LastUnpublish(volume).GetNodeId(); got != node {
			t.Errorf("%s was unpublished from %q, want %q", volume, got, node)
		}
	}
}
