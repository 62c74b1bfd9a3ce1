package tests

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// attachedBySidecar makes a VolumeAttachment as csi-attacher leaves it: without a note of its volume handle.
func (v *virtual) attachedBySidecar(name, volume, nodeID string) {
	v.t.Helper()
	va := v.attachment(volume, "n").Build()
	va.Name, va.Finalizers, va.Status.Attached = name, []string{attach.Finalizer(virtualDriver)}, true
	va.Annotations = map[string]string{attach.AnnotationNodeID: nodeID}
	if _, err := v.kube.StorageV1().VolumeAttachments().Create(v.t.Context(), va, metav1.CreateOptions{}); err != nil {
		v.t.Fatal(err)
	}
}

// Its PersistentVolume was removed by force before the hub came: nobody knows which volume it is about.
func TestAttachmentOfAnUnknownVolumeKeepsNoOtherFromBeingDetached(t *testing.T) {
	for _, name := range []string{"named-by-hand", "csi-" + strings.Repeat("0f", 32)} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.attachedBySidecar(name, "gone", "id-n")
				v.start()
				va := v.attached()
				v.delete(va)
				v.pass(time.Minute)
				if got := v.get(va.Name); got != nil {
					t.Errorf("not detached: %+v", got.Status)
				}
			})
		})
	}
}

// The new object of a name came while the watch told of the end of the old one: its own volume was said to be left
// attached, without end.
func TestVolumeOfALivingAttachmentIsNotSaidToBeLeftAttached(t *testing.T) {
	for range 20 { // which goroutine is first is not decided
		inVirtualTime(t, func(v *virtual) {
			v.register("n", "id-n")
			v.volume("v")
			v.start()
			v.pass(time.Second)
			va := v.attachment("v", "n")
			v.beforeFirst(fakekube.Request{Verb: "patch", Resource: "volumeattachments/status", Name: va.Name}, func() {
				v.stripFinalizers(va.Name)
				v.delete(va)
				v.create(va)
			})
			v.create(va)
			v.pass(time.Minute)
			v.api.Intercept(nil)
			v.api.ReleaseWatches("volumeattachments")
			v.pass(time.Hour)
			if got := v.get(va.Name); !got.Status.Attached || v.danglingCount() > 0 || !v.backend.Books().IsAttached("v", "id-n") {
				t.Errorf("%+v, %d volumes said to be left attached, attached %v", got.Status, v.danglingCount(), v.backend.Books().Attached)
			}
		})
	}
}

// One that wants the volume where it was left attached goes again: the volume was asked for elsewhere before it was detached.
func TestAttachElsewhereWaitsWhileItIsNotClearWhoHasWhatWasLeftAttached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.register("other", "id-other")
		v.refuseToDetach("id-n", codes.Internal)
		v.deleteWithoutDetach(va)
		v.api.Intercept(func(r fakekube.Request) int {
			if r == (fakekube.Request{Verb: "patch", Resource: "volumeattachments", Name: va.Name}) {
				return http.StatusInternalServerError // the next one of the name cannot begin
			}
			return 0
		})
		v.create(va)
		v.pass(10 * time.Second)
		v.turn(fakecsi.Knobs{ClearFaults: true})
		if n := v.danglingCount(); n != 1 {
			t.Fatalf("%d volumes said to be left attached, want one", n)
		}
		elsewhere := v.attachment("v", "other")
		v.delete(va)
		v.create(elsewhere)
		v.pass(time.Minute)
		if books := v.backend.Books(); books.ViolationCount > 0 || !books.IsAttached("v", "id-other") || len(books.Attached["v"]) != 1 {
			t.Errorf("violations %+v, attached %v; want it detached and then attached elsewhere", books.Violations, books.Attached)
		}
	})
}

// Nobody looks at a page at three in the morning.
func TestFailedDetachOfWhatWasLeftAttachedIsToldByAnEvent(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.leaveAttached(codes.Internal)
		v.pass(time.Second)
		v.eventsWith("")
		v.pass(10 * time.Minute)
		if events := v.eventsWith("DetachFailed"); len(events) == 0 {
			t.Error("no Event tells of it")
		}
		if d := v.hub.Drivers()[0]; len(d.Failures) == 0 {
			t.Error("it is not among the failures")
		}
	})
}

// A proxy ends each connection after some minutes: no session is ever old enough to be believed.
func TestVolumeIsGivenUpAlsoWhereNoConnectionLasts(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
			s := newBackendSession(v.backend)
			s.info.Capabilities.ListPublishedNodes = false // its list would show the volume: it would be reported as dangling
			time.AfterFunc(10*time.Minute, s.Close)
			return s, nil
		}
		v.start()
		va := v.attached()
		v.refuseToDetach("id-n", codes.NotFound)
		v.deleteWithoutDetach(va)
		v.pass(3 * 24 * time.Hour)
		if n := v.danglingCount(); n > 0 {
			t.Errorf("%d volumes said to be left attached after three days", n)
		}
	})
}

// The driver is uninstalled.
func TestPersistentVolumeDoesNotWaitForEverForADriverThatIsAway(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		var sessions []*backendSession
		v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
			if len(sessions) > 0 {
				return nil, errors.New("nobody answers")
			}
			sessions = append(sessions, newBackendSession(v.backend))
			return sessions[0], nil
		}
		v.start()
		va := v.attached()
		sessions[0].Close()
		v.pass(time.Second) // the hub knows that the driver is away before the deletion comes
		v.delete(va, testbed.PersistentVolume{Name: "v"})
		v.pass(time.Minute)
		v.stripFinalizers(va.Name)
		v.pass(5 * time.Minute)
		if !v.hasVolume("v") {
			t.Error("the PersistentVolume went within minutes, though its volume is attached")
		}
		v.pass(time.Hour)
		if v.hasVolume("v") {
			t.Error("the PersistentVolume waits still")
		}
	})
}

// The right to read VolumeAttachments is missing: nothing said so, and the volume waited. The answer to the write that says
// so shows the object as it is.
func TestReadThatIsForbiddenAfterATakeoverIsSaidAndKeepsNoVolumeWaiting(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		va := v.attachment("v", "n")
		v.create(va)
		v.leased()
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "get" && r.Resource == "volumeattachments" {
				return http.StatusForbidden
			}
			return 0
		})
		v.start()
		v.pass(10 * time.Minute)
		reads := v.api.Count("get", "volumeattachments")
		v.api.Intercept(nil)
		if got := v.get(va.Name); !got.Status.Attached {
			t.Errorf("%+v, want it attached", got.Status)
		}
		if events := v.eventsWith("read volumeattachment"); len(events) == 0 {
			t.Error("no Event tells of it")
		}
		if reads > 5 {
			t.Errorf("%d reads, want few", reads)
		}
	})
}

// The hub was started while the driver was away, and somebody takes the finalizer of what is being detached.
func TestFinalizerThatIsTakenBeforeTheDriverCouldBeCalledLeavesNothingAttached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		stop := v.start()
		va := v.attached()
		stop()
		connect := v.options.Connect
		var back atomic.Bool
		v.options.Connect = func(ctx context.Context, d registry.Driver) (hubdriver.Session, error) {
			if !back.Load() {
				return nil, errors.New("nobody answers")
			}
			return connect(ctx, d)
		}
		v.start()
		v.pass(time.Second)
		v.deleteWithoutDetach(va)
		v.pass(time.Second)
		if n := v.danglingCount(); n != 1 {
			t.Errorf("%d volumes said to be left attached, want one", n)
		}
		back.Store(true)
		v.pass(time.Minute)
		if books := v.backend.Books(); len(books.Attached) > 0 || v.danglingCount() > 0 {
			t.Errorf("attached %v, %d volumes said to be left attached", books.Attached, v.danglingCount())
		}
	})
}

// csi-attacher has attached it at an ID that its node has no more, and another node has now.
func TestDetachDoesNotHitWhatASidecarHasAttachedWhereItIsNoted(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-now")
		v.register("leaving", "id")
		v.volume("v", corev1.ReadWriteMany)
		v.attachedBySidecar("living", "v", "id")
		v.turn(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: "v", Node: "id"}}})
		v.start()
		leaving := v.attachment("v", "leaving")
		v.create(leaving)
		v.pass(time.Second)
		v.delete(leaving)
		v.pass(time.Minute)
		if n := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id"); n > 0 || v.get(leaving.Name) != nil {
			t.Errorf("%d calls to detach it from under the living attachment; the leaving one is there: %v", n, v.get(leaving.Name) != nil)
		}
	})
}
