package tests

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
)

// An admission webhook for PersistentVolumes is down: the status said nothing for a quarter of an hour, and then that a
// worker is waited for.
func TestErrorOfTheKubernetesAPIThatLastsIsSaidInTheStatus(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "patch" && r.Resource == "persistentvolumes" {
				return http.StatusInternalServerError
			}
			return 0
		})
		v.start()
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(time.Second)
		if got := v.get(va.Name); got.Status.AttachError != nil {
			t.Errorf("after a second the status says %q: that may pass by itself", got.Status.AttachError.Message)
		}
		v.pass(time.Minute)
		says := func() string {
			t.Helper()
			got := v.get(va.Name)
			if got.Status.AttachError == nil {
				t.Fatal("the status says nothing")
			}
			return got.Status.AttachError.Message
		}
		if text := says(); !strings.Contains(text, "add finalizer to persistentvolume") {
			t.Errorf("after a minute the status says %q, want the error", text)
		}
		if events := v.eventsWith("AttachFailed"); len(events) == 0 {
			t.Error("no Event says so")
		}
		v.pass(20 * time.Minute)
		if text := says(); !strings.HasPrefix(text, "stuck: ") || !strings.Contains(text, "add finalizer to persistentvolume") {
			t.Errorf("when it is stuck the status says %q, want the last error", text)
		}
		v.api.Intercept(nil)
		v.pass(time.Minute)
		if got := v.get(va.Name); !got.Status.Attached || got.Status.AttachError != nil {
			t.Errorf("%+v at the end, want it attached", got.Status)
		}
	})
}

// Somebody else writes the PersistentVolume all the time: nothing of that is for the status, until it is stuck.
func TestReasonOfAStuckAttachmentIsTheLastErrorAlsoIfThatIsNoneForTheStatus(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "patch" && r.Resource == "persistentvolumes" {
				return http.StatusConflict
			}
			return 0
		})
		v.start()
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(20 * time.Minute)
		got := v.get(va.Name)
		if e := got.Status.AttachError; e == nil || !strings.Contains(e.Message, "add finalizer to persistentvolume") {
			t.Errorf("the status says %+v, want the last error", e)
		}
	})
}
