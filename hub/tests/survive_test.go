package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func hasAttachError(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil }

func TestDetachUsesTheLastSecretThatWorkedWhenItIsGone(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	secret := testbed.Secret{Name: w.name("secret"), Data: map[string]string{"key": "one"}}
	w.create(secret)
	va := testbed.VolumeAttachment{Name: w.name("v"), Driver: driver, Node: w.node("n", driver), PersistentVolume: w.name("v")}
	w.create(testbed.PersistentVolume{Name: va.Name, Driver: driver, Handle: "v", Secret: &corev1.SecretReference{Namespace: "default", Name: secret.Name}})
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.delete(secret)
	w.delete(va)
	w.waitNoneLeft()
	if got := backend.LastUnpublish("v").GetSecrets()["key"]; got != "one" {
		t.Errorf("secret of the detach %q, want the one of the attach", got)
	}
}

func TestDetachUsesTheLastVolumeSeenWhenItIsGone(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	// As csi-attacher leaves it: without a note of the volume handle.
	attachments, volumes := w.plane.Clientset().StorageV1().VolumeAttachments(), w.plane.Clientset().CoreV1().PersistentVolumes()
	note := []byte(`{"metadata":{"annotations":{"` + attach.AnnotationVolumeHandle + `":null}}}`)
	if _, err := attachments.Patch(w.ctx, va.Name, types.MergePatchType, note, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.delete(testbed.PersistentVolume{Name: va.PersistentVolume})
	strip := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := volumes.Patch(w.ctx, va.PersistentVolume, types.MergePatchType, strip, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := volumes.Get(w.ctx, va.PersistentVolume, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the volume is still there: %v", err)
	}
	w.delete(va)
	w.waitNoneLeft()
	w.checkBooks(map[string]int{driver: 0})
}

// isFinished reports whether a VolumeAttachment says that it is detached, and nothing holds it any more.
func isFinished(driver string) func(*storagev1.VolumeAttachment) bool {
	return func(va *storagev1.VolumeAttachment) bool {
		return !va.Status.Attached && !attach.HasFinalizer(va.Finalizers, attach.Finalizer(driver))
	}
}

func TestAttachmentsAreFinishedWhenTheDriverNoLongerRequiresAttach(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	node := w.node("n", driver)
	va := w.volume("v", driver, node)
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.create(testbed.CSIDriver{Name: driver, NoAttach: true})
	w.waitForOne(va.Name, "finished", isFinished(driver))
	w.checkBooks(map[string]int{driver: 0})
	w.delete(va)
	w.waitNoneLeft()
	// Whatever comes back to requiring it is attached again.
	again := w.volume("again", driver, node)
	w.create(again)
	w.delete(testbed.CSIDriver{Name: driver})
	w.waitForOne(again.Name, "attached", isAttached)
}

func TestStuckAttachmentSaysSinceWhenAndHowOften(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.StuckAfter = time.Millisecond
		s.Retry.Initial = 10 * time.Millisecond
	})
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Message: "no path", Count: 3}}})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "tried three times", func(va *storagev1.VolumeAttachment) bool {
		return hasAttachError(va) && strings.Contains(va.Status.AttachError.Message, "3 failed tries, last error: ")
	})
	e := got.Status.AttachError
	since := "stuck: attach requested at " + got.CreationTimestamp.UTC().Format(time.RFC3339)
	if !strings.HasPrefix(e.Message, since) || !strings.Contains(e.Message, "no path") || e.ErrorCode == nil || *e.ErrorCode != int32(codes.Internal) {
		t.Errorf("attachError %+v, want %q, the last error and its code", e, since)
	}
	w.waitForOne(va.Name, "attached", isAttached)
}

func TestAttachmentThatWaitsForADriverThatIsAwayIsReportedStuck(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.StuckAfter = 10 * time.Millisecond })
	node := w.node("n", driver)
	before, va := w.volume("before", driver, node), w.volume("v", driver, node)
	w.start()
	w.create(before)
	w.waitForOne(before.Name, "attached", isAttached)
	w.servers[driver].Crash()
	w.create(va)
	got := w.waitForOne(va.Name, "reported", hasAttachError)
	if m := got.Status.AttachError.Message; !strings.Contains(m, "not connected") {
		t.Errorf("attachError %q, want it to say that the driver is not connected", m)
	}
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	w.waitForOne(va.Name, "attached", isAttached)
}

func TestMaxPerNodeLimitsCallsOfOneNode(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.MaxPerNode = 2 })
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume, Node: "id-full"}}})
	full, free := w.node("full", driver), w.node("free", driver)
	var onFull, onFree []testbed.Object
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		onFull = append(onFull, w.volume("full-"+name, driver, full))
		onFree = append(onFree, w.volume("free-"+name, driver, free))
	}
	w.start()
	w.create(onFull...)
	w.waitBooks(backend, "two calls hang", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 2 })
	w.create(onFree...)
	w.waitAttachedOn(free, len(onFree))
	if got := backend.Books().AttachInFlight.Now; got != 2 {
		t.Errorf("%d calls in flight for the full node, want 2", got)
	}
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitAllAttached(len(onFull) + len(onFree))
	if got := mostAtOnce(backend.Books().Calls); got > 2 {
		t.Errorf("%d calls of one node at once, want at most 2", got)
	}
}

func (w *world) waitAttachedOn(node string, n int) {
	w.t.Helper()
	w.waitFor("all of "+node+" attached", func(all []*storagev1.VolumeAttachment) bool {
		attached := 0
		for _, va := range all {
			if va.Spec.NodeName == node && va.Status.Attached {
				attached++
			}
		}
		return attached == n
	})
}

// mostAtOnce returns how many calls of one node overlapped at most.
func mostAtOnce(calls []fakecsi.Call) int {
	most := 0
	for _, c := range calls {
		overlapping := 0
		for _, other := range calls {
			if c.Node != "" && other.Node == c.Node && !other.Start.After(c.Start) && other.End.After(c.Start) {
				overlapping++
			}
		}
		most = max(most, overlapping)
	}
	return most
}

func TestVolumeIsDetachedWhereItWasWhenItsNodeCameBackUnderAnotherID(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.delete(testbed.CSINode{Node: va.Node})
	w.create(testbed.CSINode{Node: va.Node, Drivers: map[string]string{driver: "id-again"}})
	// Others are attached until one of them is under the new ID: so the hub knows it.
	others := 0
	for others == 0 || !backend.Books().IsAttached(fmt.Sprintf("other%d", others), "id-again") {
		others++
		other := w.volume(fmt.Sprintf("other%d", others), driver, va.Node)
		w.create(other)
		w.waitForOne(other.Name, "attached", isAttached)
	}
	w.delete(va)
	w.waitBooks(backend, "the volume is detached from the old ID", func(b fakecsi.Books) bool { return !b.IsAttached("v", "id-n") })
	w.waitFor("only the others left", testbed.AllAttached(others))
}

func TestVolumeIsDetachedWhenItsAttachmentVanishesDuringTheCall(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitBooks(backend, "publish is called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	w.delete(va)
	w.strip(va.Name)
	w.waitNoneLeft()
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitBooks(backend, "the volume is detached again", func(b fakecsi.Books) bool {
		return b.Methods[fakecsi.ControllerUnpublishVolume].Ended == 1 && len(b.Attached) == 0
	})
}

// strip takes all finalizers from a VolumeAttachment.
func (w *world) strip(name string) {
	w.t.Helper()
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := w.plane.Clientset().StorageV1().VolumeAttachments().Patch(w.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func TestVolumeLeftAttachedIsDetachedBeforeItIsAttachedElsewhere(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	elsewhere := va
	elsewhere.Name, elsewhere.Node = va.Name+"-elsewhere", w.node("m", driver)
	w.start()
	for range 5 {
		w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
		w.create(va)
		w.waitBooks(backend, "publish is called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
		w.delete(va)
		w.strip(va.Name)
		w.waitNoneLeft()
		w.create(elsewhere)
		w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
		w.waitForOne(elsewhere.Name, "attached", isAttached)
		w.delete(elsewhere)
		w.waitNoneLeft()
	}
	w.checkBooks(map[string]int{driver: 0})
}

func TestVolumeInUseIsNotDetachedBecauseTheDriverNoLongerRequiresAttach(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	w.create(testbed.Node{Name: va.Node})
	inUse := func(value string) {
		t.Helper()
		if _, err := w.plane.Clientset().CoreV1().Nodes().Patch(w.ctx, va.Node, types.MergePatchType,
			[]byte(`{"status":{"volumesInUse":`+value+`}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	inUse(`["kubernetes.io/csi/` + driver + `^v"]`)
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.create(testbed.CSIDriver{Name: driver, NoAttach: true})
	got := w.waitForOne(va.Name, "explained", func(va *storagev1.VolumeAttachment) bool { return va.Status.DetachError != nil })
	if !strings.Contains(got.Status.DetachError.Message, "in use") || !got.Status.Attached || !backend.Books().IsAttached("v", "id-n") {
		t.Errorf("%+v: want it attached, and said that it is in use", got.Status)
	}
	inUse(`null`)
	w.waitForOne(va.Name, "finished", isFinished(driver))
	w.checkBooks(map[string]int{driver: 0})
}

func TestAttachmentOfADriverThatWasNeverThereIsReportedStuck(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	w.servers[driver].Crash()
	w.set(driver, func(s *registry.Settings) { s.StuckAfter = 10 * time.Millisecond })
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "reported", hasAttachError)
	if m := got.Status.AttachError.Message; !strings.Contains(m, "not connected") {
		t.Errorf("attachError %q, want it to say that the driver is not connected", m)
	}
}

func TestVolumeStaysAsLongAsItMayBeLeftAttached(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Retry = registry.Retry{Initial: 100 * time.Millisecond, Max: 100 * time.Millisecond}
	})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
	w.delete(va)
	w.strip(va.Name)
	w.waitNoneLeft()
	w.delete(testbed.PersistentVolume{Name: va.PersistentVolume})
	w.waitBooks(backend, "tried a few times", func(b fakecsi.Books) bool { return b.Methods[fakecsi.ControllerUnpublishVolume].Ended > 4 })
	volumes := w.plane.Clientset().CoreV1().PersistentVolumes()
	if pv, err := volumes.Get(w.ctx, va.PersistentVolume, metav1.GetOptions{}); err != nil || !attach.HasFinalizer(pv.Finalizers, attach.Finalizer(driver)) {
		t.Errorf("the volume has lost its finalizer while it is attached: %v", err)
	}
	watcher, err := testbed.WatchPersistentVolumes(w.ctx, w.plane.Clientset(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Close)
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
	err = watcher.WaitFor(w.ctx, "the volume gone", func(all []*corev1.PersistentVolume) bool {
		return !slices.ContainsFunc(all, func(pv *corev1.PersistentVolume) bool { return pv.Name == va.PersistentVolume })
	})
	if err != nil {
		t.Error(err)
	}
}

// The finalizer went while the volume was being detached: that the VolumeAttachment is
// gone does not mean that the volume is detached.
func TestVolumeStaysWhileItIsBeingDetachedForAnAttachmentThatIsGone(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	node := w.node("n", driver)
	va, other := w.volume("v", driver, node), w.volume("other", driver, node)
	w.start()
	w.create(va, other)
	w.waitFor("attached", testbed.AllAttached(2))
	w.delete(other)
	w.waitFor("one detached", func(all []*storagev1.VolumeAttachment) bool { return len(all) == 1 })
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
	w.delete(va)
	w.waitBooks(backend, "it is being detached", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	w.strip(va.Name)
	w.waitNoneLeft()
	watcher, err := testbed.WatchPersistentVolumes(w.ctx, w.plane.Clientset(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Close)
	gone := func(name string) func([]*corev1.PersistentVolume) bool {
		return func(all []*corev1.PersistentVolume) bool {
			return !slices.ContainsFunc(all, func(pv *corev1.PersistentVolume) bool { return pv.Name == name })
		}
	}
	w.delete(testbed.PersistentVolume{Name: va.PersistentVolume})
	// By then the hub has had the first one before it too.
	w.delete(testbed.PersistentVolume{Name: other.PersistentVolume})
	if err := watcher.WaitFor(w.ctx, "the other volume gone", gone(other.PersistentVolume)); err != nil {
		t.Fatal(err)
	}
	if gone(va.PersistentVolume)(watcher.List()) {
		t.Error("the volume is gone while it is being detached")
	}
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true, ClearFaults: true})
	if err := watcher.WaitFor(w.ctx, "the volume gone", gone(va.PersistentVolume)); err != nil {
		t.Error(err)
	}
	if backend.Books().IsAttached("v", "id-n") {
		t.Error("the volume is gone and still attached")
	}
}

func TestVolumeLeftAttachedIsLeftToTheAttachmentThatWantsItThere(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Retry = registry.Retry{Initial: 10 * time.Millisecond, Max: 10 * time.Millisecond}
	})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Volume: "v", Code: codes.Internal}}})
	w.delete(va)
	w.strip(va.Name)
	w.waitNoneLeft()
	w.waitBooks(backend, "tried to detach", func(b fakecsi.Books) bool { return b.Methods[fakecsi.ControllerUnpublishVolume].Ended > 1 })
	w.create(va)
	w.waitForOne(va.Name, "attached again", isAttached)
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
	// Others come and go meanwhile, so that a dangling publication that was still there had its chance.
	for _, name := range []string{"a", "b", "c", "d"} {
		other := w.volume(name, driver, va.Node)
		w.create(other)
		w.waitForOne(other.Name, "attached", isAttached)
		w.delete(other)
		w.waitFor("only the first left", testbed.AllAttached(1))
	}
	if !backend.Books().IsAttached("v", "id-n") {
		t.Error("the volume was detached from under its new VolumeAttachment")
	}
}

func TestCallsThatOutliveTheGraceAreCut(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.Timeout = time.Hour })
	w.options.Grace = 50 * time.Millisecond
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	va := w.volume("v", driver, w.node("n", driver))
	stop := w.start()
	w.create(va)
	w.waitBooks(backend, "publish is called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	stop() // returns when all has ended
	w.waitBooks(backend, "the call was cut", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 0 })
	if got := w.get(va.Name); !attach.HasFinalizer(got.Finalizers, attach.Finalizer(driver)) || got.Status.AttachError != nil {
		t.Errorf("%+v: want the finalizer to stay, and no error for what was only cut", got)
	}
}
