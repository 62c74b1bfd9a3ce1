package tests

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// fence attaches one more volume: when it is attached, the hub has seen all that
// came before.
func (w *world) fence(name, driver, node string) testbed.VolumeAttachment {
	w.t.Helper()
	va := w.volume(name, driver, node)
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	return va
}

// about keeps of what was said that which is about one of world.volume's volumes.
func about(said []string, va testbed.VolumeAttachment) []string {
	handle, _, _ := strings.Cut(va.Name, ".")
	return slices.DeleteFunc(said, func(s string) bool {
		return !strings.Contains(s, "/"+va.Name) && !strings.HasSuffix(s, "publish "+handle)
	})
}

func patchOf(resource, name string, subresource ...string) string {
	return strings.Join(append([]string{"PATCH " + resource, name}, subresource...), "/")
}

// setFinalizers writes the finalizers of a VolumeAttachment as another writer may.
func (w *world) setFinalizers(name, finalizers string) {
	w.t.Helper()
	_, err := w.plane.Clientset().StorageV1().VolumeAttachments().Patch(w.ctx, name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func isDetached(va *storagev1.VolumeAttachment) bool { return !va.Status.Attached }

func (w *world) retry(driver string, initial time.Duration) {
	w.set(driver, func(s *registry.Settings) { s.Retry = registry.Retry{Initial: initial, Max: max(initial, time.Minute)} })
}

func TestFinalizersComeBeforeTheCallAndTheStatusAfterIt(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	x := w.tap()
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	other := w.fence("other", driver, va.Node)
	said := about(x.heard(), va)
	if len(said) == 4 {
		slices.Sort(said[:2]) // side by side
	}
	want := []string{patchOf("persistentvolumes", va.Name), patchOf("volumeattachments", va.Name), "publish v", patchOf("volumeattachments", va.Name, "status")}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("attach (-want +got):\n%s", diff)
	}
	w.delete(va)
	w.waitForOne(other.Name, "alone", func(*storagev1.VolumeAttachment) bool { return len(w.own(w.watcher.List())) == 1 })
	w.fence("last", driver, va.Node)
	if diff := cmp.Diff([]string{"unpublish v", patchOf("volumeattachments", va.Name)}, about(x.heard(), va)); diff != "" {
		t.Errorf("detach of what nobody else holds (-want +got):\n%s", diff)
	}
}

func TestStatusOfADetachIsWrittenOnlyWhereTheObjectLivesOn(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	x := w.tap()
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.setFinalizers(va.Name, `["example.com/first","external-attacher/`+strings.ReplaceAll(driver, ".", "-")+`","example.com/last"]`)
	w.fence("other", driver, va.Node)
	x.heard()
	w.delete(va)
	got := w.waitForOne(va.Name, "detached", isDetached)
	if diff := cmp.Diff([]string{"example.com/first", "example.com/last"}, got.Finalizers); diff != "" {
		t.Errorf("finalizers of others (-want +got):\n%s", diff)
	}
	if got.Status.AttachmentMetadata != nil {
		t.Errorf("status %+v, want it empty", got.Status)
	}
	w.fence("last", driver, va.Node)
	want := []string{"unpublish v", patchOf("volumeattachments", va.Name), patchOf("volumeattachments", va.Name, "status")}
	if diff := cmp.Diff(want, about(x.heard(), va)); diff != "" {
		t.Errorf("detach of what somebody else holds (-want +got):\n%s", diff)
	}
	w.setFinalizers(va.Name, "null")
	w.fence("end", driver, va.Node)
	if said := about(x.heard(), va); len(said) > 0 {
		t.Errorf("said of an object that is gone: %v", said)
	}
}

func TestNothingIsWrittenOfWhatWasDeletedBeforeAnythingWasDone(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	x := w.tap()
	va := w.volume("v", driver, w.node("n", driver))
	w.create(va)
	w.setFinalizers(va.Name, `["example.com/other"]`)
	w.delete(va)
	w.start()
	w.fence("other", driver, va.Node)
	w.setFinalizers(va.Name, "null")
	w.fence("last", driver, va.Node)
	if said := about(x.heard(), va); len(said) > 0 {
		t.Errorf("said %v, want nothing", said)
	}
	if calls := backend.Books().CallsOf(fakecsi.ControllerPublishVolume, "v"); len(calls) > 0 {
		t.Errorf("calls %+v, want none", calls)
	}
}

func TestStartingAgainWritesAndCallsNothingForWhatIsAttached(t *testing.T) {
	const n = 20
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	x := w.tap()
	node := w.node("n", driver)
	var vas []testbed.Object
	for i := range n {
		vas = append(vas, w.volume(fmt.Sprintf("v%d", i), driver, node))
	}
	stop := w.start()
	w.create(vas...)
	w.waitAllAttached(n)
	stop()
	x.heard()
	w.start()
	other := w.fence("other", driver, node)
	all := x.heard()
	if others := about(slices.Clone(all), other); len(all) != len(others) {
		t.Errorf("said %v, want no more than %v", all, others)
	}
	if got := backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun; got != n+1 {
		t.Errorf("%d publishes, want %d", got, n+1)
	}
	w.checkBooks(map[string]int{driver: n + 1})
}

func TestFailedSaveOfAttachedDoesNotPublishAgain(t *testing.T) {
	for _, tc := range []struct {
		name    string
		applied bool // the write happens, but its answer is lost
	}{{"refused", false}, {"answer lost", true}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			driver, backend := w.driver("d", fakecsi.Options{})
			w.retry(driver, 10*time.Millisecond)
			x := w.tap()
			broken := true
			x.meddle(func(r *http.Request, pass func() (*http.Response, error)) (*http.Response, error) {
				if !broken || !strings.HasSuffix(r.URL.Path, "/status") {
					return pass()
				}
				broken = false
				if tc.applied {
					response, err := pass()
					if err != nil {
						return nil, err
					}
					response.Body.Close()
				}
				return nil, errors.New("connection reset by the test")
			})
			va := w.volume("v", driver, w.node("n", driver))
			w.start()
			w.create(va)
			got := w.waitForOne(va.Name, "attached", isAttached)
			if got.Status.AttachmentMetadata["devicePath"] == "" {
				t.Errorf("status %+v, want the publish context of the one call", got.Status)
			}
			w.fence("other", driver, va.Node)
			if calls := backend.Books().CallsOf(fakecsi.ControllerPublishVolume, "v"); len(calls) != 1 {
				t.Errorf("%d publishes, want 1", len(calls))
			}
			w.delete(va)
			w.waitFor("detached", func(all []*storagev1.VolumeAttachment) bool { return len(all) == 1 })
			w.checkBooks(map[string]int{driver: 1})
		})
	}
}

func TestFailedRemovalOfTheFinalizerDoesNotUnpublishAgain(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, 10*time.Millisecond)
	x := w.tap()
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	failures := 2
	x.meddle(func(r *http.Request, pass func() (*http.Response, error)) (*http.Response, error) {
		if failures == 0 || strings.HasSuffix(r.URL.Path, "/status") {
			return pass()
		}
		failures--
		return nil, errors.New("connection reset by the test")
	})
	w.delete(va)
	w.waitNoneLeft()
	if calls := backend.Books().CallsOf(fakecsi.ControllerUnpublishVolume, "v"); len(calls) != 1 {
		t.Errorf("%d unpublishes, want 1", len(calls))
	}
}

func TestErrorThatCannotBeSavedDoesNotStopTheRetries(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, 10*time.Millisecond)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.NotFound, Count: 2}}})
	x := w.tap()
	broken := 2
	x.meddle(func(r *http.Request, pass func() (*http.Response, error)) (*http.Response, error) {
		if broken == 0 || !strings.HasSuffix(r.URL.Path, "/status") {
			return pass()
		}
		broken--
		return nil, errors.New("connection reset by the test")
	})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "attached", isAttached)
	if got.Status.AttachError != nil || broken != 0 {
		t.Errorf("attachError %+v, %d saves of it not tried", got.Status.AttachError, broken)
	}
	if calls := backend.Books().CallsOf(fakecsi.ControllerPublishVolume, "v"); len(calls) != 3 {
		t.Errorf("%d publishes, want 3", len(calls))
	}
}

func TestDriverThatDoesNotKnowTheVolumeIsAskedToDetachItAllTheSame(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, time.Hour)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.NotFound}}})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "with an error", hasAttachError)
	if e := got.Status.AttachError; e.ErrorCode == nil || *e.ErrorCode != 5 || len(got.Finalizers) != 1 {
		t.Errorf("attachError %+v, finalizers %v, want code 5 and the finalizer", e, got.Finalizers)
	}
	w.delete(va)
	w.waitNoneLeft()
	if calls := backend.Books().CallsOf(fakecsi.ControllerUnpublishVolume, "v"); len(calls) != 1 {
		t.Errorf("%d unpublishes, want 1: an error does not prove that the volume is detached", len(calls))
	}
}

func TestRecreatedAttachmentStartsWithAFreshBackoff(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, time.Hour) // whoever inherits a backoff never comes to its turn
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.InvalidArgument, Count: 1}}})
	called := w.volume("called", driver, w.node("n", driver))
	early := testbed.VolumeAttachment{Name: w.name("early"), Driver: driver, Node: called.Node, PersistentVolume: w.name("early")}
	w.start()
	w.create(called)
	w.waitForOne(called.Name, "with an error", hasAttachError)
	w.create(early) // fails for want of its volume, before anything was written or called
	w.waitForOne(early.Name, "with an error", hasAttachError)
	w.delete(called, early)
	w.waitNoneLeft()
	w.create(called, early)
	w.waitForOne(called.Name, "attached", isAttached)
	// The second one fails again, at once and not after an hour.
	w.waitForOne(early.Name, "with an error", hasAttachError)
	w.checkBooks(map[string]int{driver: 1})
}

func TestDeletionCutsThroughABackoff(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, time.Hour)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, AfterEffect: true, Count: 1}}})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "with an error", hasAttachError)
	w.delete(va)
	w.waitNoneLeft()
	w.checkBooks(map[string]int{driver: 0})
}

func TestOwnWritesAreNotRepeatedWhileTheWatchesLag(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, time.Hour)
	w.turn(backend, fakecsi.Knobs{
		Hang: []fakecsi.Hang{{Method: fakecsi.Probe}},
		Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Volume: "failing", Code: codes.Internal}},
	})
	x := w.tap()
	one, two := w.node("n1", driver), w.node("n2", driver)
	name := w.name("v")
	w.create(testbed.PersistentVolume{Name: name, Driver: driver, Handle: "v", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}})
	first := testbed.VolumeAttachment{Name: name, Driver: driver, Node: one, PersistentVolume: name}
	second := testbed.VolumeAttachment{Name: w.name("second"), Driver: driver, Node: two, PersistentVolume: name}
	failing := w.volume("failing", driver, one)
	w.create(first, second, failing)
	w.start()
	// The driver is connected to when the caches are filled.
	w.waitBooks(backend, "the driver is connected to", func(b fakecsi.Books) bool { return b.Methods[fakecsi.Probe].Begun > 0 })
	x.freeze()
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitFor("both attached", func(all []*storagev1.VolumeAttachment) bool {
		return len(slices.DeleteFunc(all, isDetached)) == 2
	})
	// All that the caches have is looked at once more whenever the driver comes back.
	// That the failing one is tried again shows it; twice, so that the first look is over.
	for tries := range 3 {
		w.waitBooks(backend, "the failing volume is tried", func(b fakecsi.Books) bool {
			return len(b.CallsOf(fakecsi.ControllerPublishVolume, "failing")) == tries+1
		})
		if tries == 2 {
			break
		}
		w.servers[driver].Crash()
		if err := w.servers[driver].Start(); err != nil {
			t.Fatal(err)
		}
	}
	x.thaw()
	w.fence("other", driver, one)
	said := x.heard()
	count := func(what string) (n int) {
		for _, s := range said {
			if s == what {
				n++
			}
		}
		return n
	}
	for what, want := range map[string]int{
		"publish v":                                         2,
		patchOf("persistentvolumes", name):                  1,
		patchOf("volumeattachments", first.Name):            1,
		patchOf("volumeattachments", first.Name, "status"):  1,
		patchOf("volumeattachments", second.Name):           1,
		patchOf("volumeattachments", second.Name, "status"): 1,
	} {
		if got := count(what); got != want {
			t.Errorf("%s: %d times, want %d; all: %v", what, got, want, said)
		}
	}
}

// The answer to the write that lets go may be lost: then only the watch tells that there is nothing left to do.
func TestNothingIsWrittenAgainAndAgainWhileAWatchOwesTheEndOfAnAttachment(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Retry = registry.Retry{Initial: 10 * time.Millisecond, Max: time.Minute}
		s.Drift.Interval = time.Second
	})
	x := w.tap()
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
	w.delete(va)
	w.waitBooks(backend, "it is being detached", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	x.freeze()
	w.setFinalizers(va.Name, "null")
	w.waitNoneLeft()
	x.heard()
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	listed := backend.Books().Methods[fakecsi.ListVolumes].Ended
	w.waitBooks(backend, "more than a second has passed", func(b fakecsi.Books) bool {
		return b.Methods[fakecsi.ListVolumes].Ended > listed+2
	})
	patches := 0
	for _, s := range x.heard() {
		if s == patchOf("volumeattachments", va.Name) {
			patches++
		}
	}
	x.thaw()
	if patches > 2 {
		t.Errorf("%d writes to what is gone, want one", patches)
	}
}
