package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// sessionsWithout has the sessions with some numbers lack PUBLISH_UNPUBLISH_VOLUME: the endpoint is that of the node plugin then,
// or the controller starts without its capabilities. It returns what ends the present session.
func (v *virtual) sessionsWithout(numbers ...int) (end func()) {
	var sessions []*backendSession
	v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
		s := newBackendSession(v.backend)
		for _, n := range numbers {
			s.info.Capabilities.PublishUnpublish = s.info.Capabilities.PublishUnpublish && n != len(sessions)
		}
		sessions = append(sessions, s)
		return s, nil
	}
	return func() {
		v.t.Helper()
		sessions[len(sessions)-1].Close()
		v.pass(5 * time.Second)
	}
}

const lostCapability = "the driver has no PUBLISH_UNPUBLISH_VOLUME, but VolumeAttachments record calls to it"

func TestNothingIsMarkedAttachedForADriverThatHasLostItsCapability(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval = 0 // a driver without LIST_VOLUMES_PUBLISHED_NODES
		next := v.sessionsWithout(1)
		v.start()
		v.attached()
		next()
		for _, name := range []string{"w", "x"} {
			v.volume(name)
			v.create(v.attachment(name, "n"))
		}
		v.pass(time.Minute)
		for _, name := range []string{"w-n", "x-n"} {
			if got := v.get(name); got.Status.Attached || got.Status.AttachError == nil || !strings.HasPrefix(got.Status.AttachError.Message, lostCapability) {
				t.Errorf("%s without a call: %+v", name, got.Status)
			}
		}
		next()
		for _, name := range []string{"w", "x"} {
			if got := v.get(name + "-n"); !got.Status.Attached || got.Status.AttachError != nil || !v.backend.Books().IsAttached(name, "id-n") {
				t.Errorf("%s when the driver is right again: %+v", name, got.Status)
			}
		}
	})
}

// Only this process knows of the call: the VolumeAttachment is gone, and the volume is in use.
func TestNothingIsMarkedAttachedForADriverThatCannotDetachWhatItPublished(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval = 0
		next := v.sessionsWithout(1)
		v.start()
		va := v.attached()
		v.inUse("n", volumeInUse)
		v.vanish(va)
		v.pass(time.Second)
		next()
		v.volume("w")
		v.create(v.attachment("w", "n"))
		v.pass(time.Minute)
		if got := v.get("w-n"); got.Status.Attached || got.Status.AttachError == nil {
			t.Errorf("without a call: %+v", got.Status)
		}
	})
}

// The first VolumeAttachment that records a call comes after others were attached without one: another attacher works beside
// the hub, or did so until now.
func TestAttachIsRefusedOnceAVolumeAttachmentRecordsACall(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.sessionsWithout(0)
		v.register("n", "id-n")
		v.start()
		for i, want := range []bool{true, true, false} {
			if !want {
				v.volume("called")
				v.attachedBySidecar("by-sidecar", "called", "id-n")
			}
			name := fmt.Sprintf("v%d", i)
			v.volume(name)
			v.create(v.attachment(name, "n"))
			v.pass(time.Minute)
			if got := v.get(name + "-n"); got.Status.Attached != want {
				t.Errorf("%s: %+v, want attached %v", name, got.Status, want)
			}
		}
		if va := v.get("v0-n"); !va.Status.Attached || attach.HasFinalizer(va.Finalizers, attach.Finalizer(virtualDriver)) {
			t.Errorf("what was attached before: %+v", va)
		}
	})
}
