package tests

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Rule: the note of a VolumeAttachment is overwritten only after one unpublish at the old target has been answered, if only with an
// error; then the old target is a dangling publication.
func TestNoteOfATargetStaysUntilTheDriverWasAskedToDetachThere(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.create(testbed.Secret{Name: "publish", Data: map[string]string{"key": "one"}})
		v.register("n", "id-n")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Secret: &corev1.SecretReference{Namespace: "default", Name: "publish"}})
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{
			{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Count: 1, AfterEffect: true},
			{Method: fakecsi.ControllerUnpublishVolume, Node: "id-n", Code: codes.Internal},
		}})
		v.start()
		va := v.attachment("v", "n")
		v.create(va)
		noted := func() string { return v.get(va.Name).Annotations[attach.AnnotationNodeID] }
		v.pass(100 * time.Millisecond)
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Resource == "secrets" {
				return http.StatusServiceUnavailable
			}
			return 0
		})
		v.register("n", "id-new")
		v.pass(time.Hour)
		if noted() != "id-n" || v.danglingCount() > 0 {
			t.Errorf("noted at %q before the driver was asked, %d volumes said to be left attached", noted(), v.danglingCount())
		}
		v.api.Intercept(nil)
		v.pass(2 * time.Minute)
		if got := v.get(va.Name); noted() != "id-new" || !got.Status.Attached || v.danglingCount() != 1 {
			t.Errorf("noted at %q, %+v, %d volumes said to be left attached; want it attached as id-new, and one left", noted(), got.Status, v.danglingCount())
		}
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(2 * time.Minute)
		want := []string{"ControllerPublishVolume id-new", "ControllerUnpublishVolume id-n"}
		if calls := done(v.backend, "v"); !slices.Equal(calls, want) || v.danglingCount() > 0 {
			t.Errorf("calls %v, want %v; %d volumes said to be left attached", calls, want, v.danglingCount())
		}
	})
}
