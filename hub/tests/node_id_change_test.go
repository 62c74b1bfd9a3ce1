package tests

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
)

// Rule: before attached:true is written, the target is compared with the CSINode again. The kubelet of a node that came
// back under another ID looks for the volume there.
func TestNodeThatGetsAnotherIDWhileItsVolumeIsAttachedHasItUnderTheNewIDOnly(t *testing.T) {
	for name, attachment := range map[string]func(v *virtual, name string){
		"during the publish": func(v *virtual, _ string) {
			v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume, Node: "id-n", AfterEffect: true}}})
			v.create(v.attachment("v", "n"))
			v.pass(time.Second)
			v.register("n", "id-new")
			v.pass(time.Second)
			v.turn(fakecsi.Knobs{ReleaseAll: true})
		},
		"between the publish and a status that is written at the second try": func(v *virtual, name string) {
			var failed atomic.Bool
			v.api.Intercept(func(r fakekube.Request) int {
				if r != (fakekube.Request{Verb: "patch", Resource: "volumeattachments/status", Name: name}) || failed.Swap(true) {
					return 0
				}
				v.register("n", "id-new")
				return http.StatusInternalServerError
			})
			v.create(v.attachment("v", "n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.register("n", "id-n")
				v.volume("v")
				v.start()
				v.pass(time.Second)
				name := "v-n"
				attachment(v, name)
				v.pass(time.Minute)
				v.api.Intercept(nil)
				va := v.get(name)
				if !va.Status.Attached || va.Annotations[attach.AnnotationNodeID] != "id-new" || va.Status.AttachError != nil {
					t.Errorf("annotations %v, status %+v; want it attached as id-new, and no error", va.Annotations, va.Status)
				}
				want := []string{"ControllerPublishVolume id-n", "ControllerUnpublishVolume id-n", "ControllerPublishVolume id-new"}
				if calls := done(v.backend, "v"); !slices.Equal(calls, want) {
					t.Errorf("calls %v, want %v", calls, want)
				}
			})
		})
	}
}

// A hub that takes over may be behind the last one, which has noted a node ID: it would detach the volume there, and
// attach it under an ID that the node does not have any more.
func TestNodeIDThatOnlyTheNoteShowsIsLookedUpBeforeTheVolumeIsMoved(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		v.pass(time.Second)
		v.api.HoldWatches("csinodes")
		v.register("n", "id-new")
		va := v.attachment("v", "n").Build()
		va.Finalizers = []string{attach.Finalizer(virtualDriver)}
		va.Annotations = map[string]string{attach.AnnotationNodeID: "id-new", attach.AnnotationVolumeHandle: "v"}
		if _, err := v.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.pass(time.Minute)
		if got := v.get(va.Name); !got.Status.Attached || got.Annotations[attach.AnnotationNodeID] != "id-new" || got.Status.AttachError != nil {
			t.Errorf("annotations %v, status %+v; want it attached as id-new, and no error", got.Annotations, got.Status)
		}
		if calls := done(v.backend, "v"); !slices.Equal(calls, []string{"ControllerPublishVolume id-new"}) {
			t.Errorf("calls %v, want the publish as id-new alone", calls)
		}
	})
}

// Rule: what is attached is never moved from its noted target, and never due: another node ID, a recreated
// PersistentVolume and a restart are no reason to write or call anything.
func TestAttachedVolumeStaysWhereItIsNotedWhenItsNodeGetsAnotherID(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		stop := v.start()
		va := v.attached()
		before := v.get(va.Name)
		v.register("n", "id-new")
		v.pass(time.Hour)
		stop()
		v.start()
		v.pass(time.Hour)
		if after := v.get(va.Name); after.ResourceVersion != before.ResourceVersion {
			t.Errorf("written: %+v, was %+v", after, before)
		}
		if calls := done(v.backend, "v"); len(calls) != 1 {
			t.Errorf("calls %v, want the publish alone", calls)
		}
	})
}

// Rule: a VolumeAttachment that takes over a publication of another UID publishes again: what the driver answered the first one was
// for that one's status.
func TestNewObjectOfANameThatTakesOverWhatTheOldOneLeftPublishesAgain(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.refuseToDetach("id-n", codes.Internal)
		v.deleteWithoutDetach(va)
		v.pass(time.Second)
		if n := v.danglingCount(); n != 1 {
			t.Fatalf("%d volumes said to be left attached, want one", n)
		}
		v.create(va)
		v.pass(time.Minute)
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(time.Hour)
		if got := v.get(va.Name); !got.Status.Attached || len(got.Status.AttachmentMetadata) == 0 || v.danglingCount() > 0 {
			t.Errorf("status %+v, %d volumes said to be left attached", got.Status, v.danglingCount())
		}
		want := []string{"ControllerPublishVolume id-n", "ControllerPublishVolume id-n"}
		if calls := done(v.backend, "v"); !slices.Equal(calls, want) {
			t.Errorf("calls %v, want %v", calls, want)
		}
	})
}
