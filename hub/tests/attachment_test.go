package tests

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func isAttached(va *storagev1.VolumeAttachment) bool { return va.Status.Attached }

func TestAttachedObjectsLookAsCsiAttacherLeavesThem(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.turn(backend, fakecsi.Knobs{PublishContext: map[string]string{"devicePath": "/dev/x"}})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "attached", isAttached)
	if len(got.Finalizers) != 1 || got.Finalizers[0] != attach.Finalizer(driver) {
		t.Errorf("finalizers %v, want %s", got.Finalizers, attach.Finalizer(driver))
	}
	if got.Annotations["csi.alpha.kubernetes.io/node-id"] != "id-n" || got.Annotations["attach-hub/volume-handle"] != "v" {
		t.Errorf("annotations %v, want node ID id-n and volume handle v", got.Annotations)
	}
	if got.Status.AttachmentMetadata["devicePath"] != "/dev/x" || got.Status.AttachError != nil {
		t.Errorf("status %+v, want the publish context and no error", got.Status)
	}
	pv, err := w.plane.Clientset().CoreV1().PersistentVolumes().Get(w.ctx, va.PersistentVolume, metav1.GetOptions{})
	if err != nil || !attach.HasFinalizer(pv.Finalizers, attach.Finalizer(driver)) {
		t.Errorf("finalizers of the volume %v, %v, want %s among them", pv.Finalizers, err, attach.Finalizer(driver))
	}
}

func TestFailedAttachIsWrittenWithItsCodeAndTriedAgain(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.ResourceExhausted, Message: "node is full", Count: 1}}})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
	if e := got.Status.AttachError; e.ErrorCode == nil || *e.ErrorCode != 8 || !strings.Contains(e.Message, "node is full") {
		t.Errorf("attachError %+v, want code 8 and the driver's words", e)
	}
	if !attach.HasFinalizer(got.Finalizers, attach.Finalizer(driver)) {
		t.Error("the finalizer is not there: an error does not prove that the volume is detached")
	}
	got = w.waitForOne(va.Name, "attached", isAttached)
	if got.Status.AttachError != nil {
		t.Errorf("attachError %+v, want none once it is attached", got.Status.AttachError)
	}
}

func TestFailedDetachIsWrittenAndTriedAgainAlsoWhenNotFound(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.NotFound, Count: 2}}})
	w.delete(va)
	got := w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.DetachError != nil })
	if e := got.Status.DetachError; e.ErrorCode == nil || *e.ErrorCode != 5 {
		t.Errorf("detachError %+v, want code 5", e)
	}
	w.waitNoneLeft()
	if got := backend.Books().Methods[fakecsi.ControllerUnpublishVolume].Ended; got != 3 {
		t.Errorf("%d calls, want 3", got)
	}
}

func TestLongErrorIsCutToWhatTheAPIServerTakes(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Message: strings.Repeat("ü", 2000), Count: 1}}})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
	if n := len(got.Status.AttachError.Message); n > 1024 || n < 1000 {
		t.Errorf("message of %d bytes, want just under 1024", n)
	}
}

func TestSecretsGoWithEachCallAndAreReadAnew(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	node := w.node("n", driver)
	secret := testbed.Secret{Name: w.name("secret"), Data: map[string]string{"key": "one"}}
	va := testbed.VolumeAttachment{Name: w.name("v"), Driver: driver, Node: node, PersistentVolume: w.name("v")}
	w.create(testbed.PersistentVolume{Name: va.Name, Driver: driver, Handle: "v", Secret: &corev1.SecretReference{Namespace: "default", Name: secret.Name}})
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
	if e := got.Status.AttachError; e.ErrorCode != nil || !strings.Contains(e.Message, "secret default/"+secret.Name) {
		t.Errorf("attachError %+v, want the missing secret to be named, without a code", e)
	}
	w.create(secret)
	w.waitForOne(va.Name, "attached", isAttached)
	if got := backend.LastPublish("v").GetSecrets()["key"]; got != "one" {
		t.Errorf("secret %q, want one", got)
	}
	patch := []byte(`{"stringData":{"key":"two"}}`)
	if _, err := w.plane.Clientset().CoreV1().Secrets("default").Patch(w.ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.delete(va)
	w.waitNoneLeft()
	if got := backend.LastUnpublish("v").GetSecrets()["key"]; got != "two" {
		t.Errorf("secret of the detach %q, want two", got)
	}
}

func TestInlineVolumeIsAttachedAndDetached(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	va := testbed.VolumeAttachment{Name: w.name("v"), Driver: driver, Node: w.node("n", driver), Inline: testbed.PersistentVolume{Driver: driver, Handle: "v"}.Inline()}
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.checkBooks(map[string]int{driver: 1})
	w.delete(va)
	w.waitNoneLeft()
	w.checkBooks(map[string]int{driver: 0})
}

func TestTrivialDriverIsMarkedAttachedWithoutCallOrFinalizer(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{Capabilities: []fakecsi.Capability{}})
	va := w.volume("v", driver, w.name("no-node"))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "attached", isAttached)
	if len(got.Finalizers) != 0 {
		t.Errorf("finalizers %v, want none", got.Finalizers)
	}
	w.delete(va)
	w.waitNoneLeft()
	if got := backend.Books().AttachInFlight.Max; got != 0 {
		t.Errorf("%d calls, want none", got)
	}
}

func TestAttachmentsOfOtherAttachersAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	other := w.volume("other", "not-served.csi.example.com", w.node("n", driver))
	va := w.volume("v", driver, w.name("n"))
	w.start()
	w.create(other)
	version := w.get(other.Name).ResourceVersion
	w.create(va) // created later, so the hub has seen the other one when this is attached
	w.waitForOne(va.Name, "attached", isAttached)
	if got := w.get(other.Name); got.ResourceVersion != version {
		t.Errorf("the VolumeAttachment of another attacher was written: %+v", got)
	}
	w.delete(other)
}

func TestAttachWaitsForTheNodeAndGoesOnAtOnceWhenTheDriverRegisters(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	// With this backoff only the event can make it attach in time.
	w.set(driver, func(s *registry.Settings) { s.Retry = registry.Retry{Initial: time.Hour, Max: time.Hour} })
	va := w.volume("v", driver, w.name("n"))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
	if !strings.Contains(got.Status.AttachError.Message, "csinode") {
		t.Errorf("attachError %+v, want the CSINode to be named", got.Status.AttachError)
	}
	w.node("n", driver)
	w.waitForOne(va.Name, "attached", isAttached)
}

func TestAttachGoesOnAtOnceWhenThePersistentVolumeAppears(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.Retry = registry.Retry{Initial: time.Hour, Max: time.Hour} })
	va := testbed.VolumeAttachment{Name: w.name("v"), Driver: driver, Node: w.node("n", driver), PersistentVolume: w.name("v")}
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
	w.volume("v", driver, va.Node)
	w.waitForOne(va.Name, "attached", isAttached)
}

func TestDeletedVolumeKeepsItsFinalizerAsLongAsItIsAttached(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	volumes, err := testbed.WatchPersistentVolumes(w.ctx, w.plane.Clientset(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(volumes.Close)
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	pv := testbed.PersistentVolume{Name: va.PersistentVolume}
	w.delete(pv)
	// Another volume goes all the way meanwhile, so that the hub has had its chance.
	other := w.volume("other", driver, va.Node)
	w.create(other)
	w.waitForOne(other.Name, "attached", isAttached)
	got, err := w.plane.Clientset().CoreV1().PersistentVolumes().Get(w.ctx, pv.Name, metav1.GetOptions{})
	if err != nil || !attach.HasFinalizer(got.Finalizers, attach.Finalizer(driver)) {
		t.Fatalf("finalizers of the volume %v, %v: it must be guarded while it is attached", got.Finalizers, err)
	}
	w.delete(va, other)
	w.waitNoneLeft()
	err = volumes.WaitFor(w.ctx, "the volume without the hub's finalizer", func(all []*corev1.PersistentVolume) bool {
		for _, other := range all {
			if other.Name == pv.Name && attach.HasFinalizer(other.Finalizers, attach.Finalizer(driver)) {
				return false
			}
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDeletionWhileAttachingDetachesAtOnceAfterTheCall(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.Retry = registry.Retry{Initial: time.Hour, Max: time.Hour} })
	w.turn(backend, fakecsi.Knobs{
		Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}},
		Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, AfterEffect: true, Count: 1}},
	})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitBooks(backend, "publish is called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	w.delete(va)
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitNoneLeft()
	w.checkBooks(map[string]int{driver: 0})
}

func TestVolumeIsDetachedFromOneNodeBeforeItIsAttachedToAnother(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	first := w.volume("v", driver, w.node("n1", driver))
	second := testbed.VolumeAttachment{Name: w.name("second"), Driver: driver, Node: w.node("n2", driver), PersistentVolume: first.PersistentVolume}
	w.start()
	w.create(first)
	w.waitForOne(first.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
	w.delete(first)
	w.waitBooks(backend, "unpublish is called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	w.create(second)
	other := w.volume("other", driver, second.Node)
	w.create(other)
	w.waitForOne(other.Name, "attached", isAttached) // created after second: its event has come
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitForOne(second.Name, "attached", isAttached)
	calls := backend.Books().Calls
	var order []string
	for _, c := range calls {
		if c.Volume == "v" {
			order = append(order, string(c.Method)+" "+c.Node)
		}
	}
	want := "ControllerPublishVolume id-n1,ControllerUnpublishVolume id-n1,ControllerPublishVolume id-n2"
	if got := strings.Join(order, ","); got != want {
		t.Errorf("calls %s\nwant  %s", got, want)
	}
	w.checkBooks(map[string]int{driver: 2})
}

func TestVolumeIsDetachedWhenSomebodyTakesTheFinalizer(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal, Count: 1}}})
	w.delete(va)
	w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.DetachError != nil })
	_, err := w.plane.Clientset().StorageV1().VolumeAttachments().Patch(w.ctx, va.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.waitBooks(backend, "the volume is detached", func(b fakecsi.Books) bool { return len(b.Attached) == 0 })
}

func TestAttachElsewhereWaitsForADetachThatIsStillQueued(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.Workers = 2 }) // one for detaches
	node := w.node("n1", driver)
	first, slow := w.volume("v", driver, node), w.volume("slow", driver, node)
	second := testbed.VolumeAttachment{Name: w.name("second"), Driver: driver, Node: w.node("n2", driver), PersistentVolume: first.PersistentVolume}
	w.start()
	w.create(first, slow)
	w.waitAllAttached(2)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume, Volume: "slow"}}})
	w.delete(slow)
	w.waitBooks(backend, "the worker for detaches is busy", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	w.delete(first)
	w.create(second)
	other := w.volume("other", driver, second.Node)
	w.create(other)
	w.waitForOne(other.Name, "attached", isAttached) // created after second: its turn has come
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitForOne(second.Name, "attached", isAttached)
	w.checkBooks(map[string]int{driver: 2})
}
