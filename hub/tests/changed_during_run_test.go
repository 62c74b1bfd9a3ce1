package tests

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestContextOfARepairIsWrittenAlsoIfAListingShowsTheVolumeDuringTheCall(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval = time.Second
		v.start()
		va := v.attached()
		v.turn(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}}, PublishContext: map[string]string{"devicePath": "new"},
			Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume, AfterEffect: true}}})
		for range 60 {
			if v.backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun == 2 {
				break
			}
			v.pass(time.Second)
		}
		v.pass(5 * time.Second) // listings show it again
		v.turn(fakecsi.Knobs{ReleaseAll: true})
		v.pass(time.Hour)
		if got := v.get(va.Name).Status; got.AttachmentMetadata["devicePath"] != "new" {
			t.Errorf("calls %v, status %+v; want the context of the last publish", done(v.backend, "v"), got)
		}
	})
}

func TestContextOfARepairWhoseStatusFailsIsWrittenAlsoIfAListingShowsTheVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval = time.Second
		v.start()
		va := v.attached()
		until := time.Now().Add(time.Minute)
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "patch" && r.Resource == "volumeattachments/status" && time.Now().Before(until) {
				return 500
			}
			return 0
		})
		v.turn(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}}, PublishContext: map[string]string{"devicePath": "new"}})
		v.pass(time.Hour)
		if got := v.get(va.Name).Status; got.AttachmentMetadata["devicePath"] != "new" {
			t.Errorf("calls %v, status %+v; want the context of the last publish", done(v.backend, "v"), got)
		}
	})
}

// An attach that has just written its note, and has not called, needs a place.
func TestAttachThatWritesItsNoteWhileItsNodeBecomesFullWaits(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.volume("w")
		v.start()
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{fakecsi.ControllerPublishVolume: {Base: 100 * time.Millisecond}},
			Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.ResourceExhausted}}})
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "patch" && r.Resource == "volumeattachments" && r.Name == "w-n" {
				time.Sleep(300 * time.Millisecond)
			}
			return 0
		})
		v.create(v.attachment("v", "n"), v.attachment("w", "n"))
		v.pass(450 * time.Millisecond)
		if n := v.backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun; n != 1 {
			t.Errorf("%d publishes, want 1: the node is full", n)
		}
	})
}

func TestDetachBecauseAttachRequiredIsFalseCounts(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.pass(time.Minute)
		v.attachRequired(false)
		v.pass(time.Minute)
		v.checkAttached("detached", va.Name, false)
		if n := v.metric("attach_hub_operations_total", "detach", "success"); n != 1 || !strings.Contains(v.log.String(), "Detached volume") {
			t.Errorf("%v detaches counted, want one, and logged", n)
		}
	})
}

func TestAttachOfWhatIsGoneMeanwhileIsNoSuccess(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume, AfterEffect: true}}})
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(time.Second)
		v.stripFinalizers(va.Name)
		v.delete(va)
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{ReleaseAll: true})
		v.pass(time.Minute)
		if strings.Contains(v.log.String(), "Attached volume") {
			t.Errorf("logged and counted as attached, calls %v", done(v.backend, "v"))
		}
	})
}

func TestAttachOfWhatIsGoneAfterItsFirstWriteIsNoSuccess(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		v.pass(time.Second)
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "patch" && r.Resource == "persistentvolumes" {
				time.Sleep(time.Second)
			}
			return 0
		})
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(500 * time.Millisecond) // it has its finalizer
		v.stripFinalizers(va.Name)
		v.delete(va)
		v.pass(time.Minute)
		if n := v.metric("attach_hub_operations_total", "attach", "success"); n != 0 || len(done(v.backend, "v")) > 0 {
			t.Errorf("%v attaches counted after calls %v, want none", n, done(v.backend, "v"))
		}
	})
}

// stripping is an admission webhook that removes the annotation of the volume handle.
type stripping struct{ next http.RoundTripper }

func (s stripping) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "volumeattachments") {
		body, _ := io.ReadAll(r.Body)
		var ops, kept []map[string]any
		_ = json.Unmarshal(body, &ops)
		for _, op := range ops {
			if value, ok := op["value"].(map[string]any); ok {
				delete(value, attach.AnnotationVolumeHandle)
			}
			if !strings.Contains(op["path"].(string), strings.ReplaceAll(attach.AnnotationVolumeHandle, "/", "~1")) {
				kept = append(kept, op)
			}
		}
		body, _ = json.Marshal(kept)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return s.next.RoundTrip(r)
}

func TestAttachWhoseNoteAWebhookRemovesBacksOffAndSaysSo(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.options.Kube = kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://api", Transport: stripping{v.api}, QPS: -1,
			ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(time.Hour)
		got := v.get(va.Name).Status
		if got.AttachError == nil || !strings.Contains(got.AttachError.Message, "another client undoes") || v.patches() > 400 {
			t.Errorf("status %+v after %d writes in an hour; want the reason, and a growing pause", got, v.patches())
		}
	})
}

func TestAttachThatIsNotRequiredAnyMoreBeforeItsFirstWriteIsNoSuccess(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.create(testbed.Secret{Name: "first", Data: map[string]string{"key": "one"}})
		v.register("n", "id-n")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "v", Secret: secretRef("first")})
		v.attachRequired(true)
		v.start()
		v.pass(time.Second)
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Resource == "secrets" {
				time.Sleep(time.Second)
			}
			return 0
		})
		v.create(v.attachment("v", "n"))
		v.pass(500 * time.Millisecond)
		v.attachRequired(false)
		v.pass(time.Minute)
		if n := v.metric("attach_hub_operations_total", "attach", "success"); n != 0 || len(done(v.backend, "v")) > 0 {
			t.Errorf("%v attaches counted after calls %v, want none", n, done(v.backend, "v"))
		}
	})
}
