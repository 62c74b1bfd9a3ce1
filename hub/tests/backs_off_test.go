package tests

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Rule: no publish of a single-node volume starts while an unpublish elsewhere is due or in flight; an unpublish that
// backs off holds nobody up, because the driver decides then. A driver that could not be asked has decided nothing.
func TestAttachElsewhereWaitsForADetachUntilTheDriverHasAnsweredIt(t *testing.T) {
	unreadable := func(v *virtual) {
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Resource == "secrets" && r.Name == "publish" {
				return http.StatusServiceUnavailable
			}
			return 0
		})
	}
	refused := func(v *virtual) { v.refuseToDetach("id-n", codes.Internal) }
	deleted := func(v *virtual, va testbed.VolumeAttachment) { v.delete(va) }
	for name, c := range map[string]struct {
		leave func(*virtual, testbed.VolumeAttachment)
		fail  func(*virtual)
		asked bool // the driver is asked to attach it elsewhere meanwhile
	}{
		"deleted, its secret cannot be read":  {deleted, unreadable, false},
		"deleted, the driver refuses":         {deleted, refused, true},
		"vanished, its secret cannot be read": {(*virtual).deleteWithoutDetach, unreadable, false},
		"vanished, the driver refuses":        {(*virtual).deleteWithoutDetach, refused, true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.create(testbed.Secret{Name: "publish", Data: map[string]string{"key": "one"}})
				v.register("n", "id-n")
				v.register("other", "id-other")
				pv := testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: &corev1.SecretReference{Namespace: "default", Name: "publish"}}
				v.create(pv)
				v.start()
				va := v.attachment("v", "n")
				v.create(va)
				v.pass(time.Second)
				c.fail(v)
				c.leave(v, va)
				v.pass(10 * time.Second)
				pv.Secret = nil // what is asked for elsewhere needs no secret
				v.recreate(pv)
				elsewhere := v.attachment("v", "other")
				v.create(elsewhere)
				v.pass(10 * time.Minute)
				if n := v.calls(fakecsi.ControllerPublishVolume, "v", "id-other"); n > 0 != c.asked {
					t.Errorf("%d calls to attach it elsewhere; want some: %v", n, c.asked)
				}
				v.api.Intercept(nil)
				v.turn(fakecsi.Knobs{ClearFaults: true})
				v.pass(2 * time.Minute)
				books := v.backend.Books()
				if !v.get(elsewhere.Name).Status.Attached || books.IsAttached("v", "id-n") {
					t.Errorf("attached %v, want it elsewhere only", books.Attached)
				}
				if !c.asked && books.ViolationCount > 0 {
					t.Errorf("violations %+v", books.Violations)
				}
			})
		})
	}
}

// A webhook refused the write that removes the finalizer: the volume was detached, and was attached nowhere else.
func TestAttachElsewhereDoesNotWaitForTheFinalizerOfWhatIsDetached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.api.Intercept(func(r fakekube.Request) int {
			if r == (fakekube.Request{Verb: "patch", Resource: "volumeattachments", Name: va.Name}) {
				return http.StatusInternalServerError
			}
			return 0
		})
		v.delete(va)
		v.register("other", "id-other")
		elsewhere := v.attachment("v", "other")
		v.create(elsewhere)
		v.pass(10 * time.Minute)
		if n := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n"); n != 1 || !v.get(elsewhere.Name).Status.Attached {
			t.Errorf("%d calls to detach it, attached elsewhere %v; want one, and then the attach", n, v.get(elsewhere.Name).Status.Attached)
		}
	})
}
