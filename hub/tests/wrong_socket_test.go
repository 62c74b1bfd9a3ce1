package tests

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// The node plugin of a driver reports the driver's name too, and no PUBLISH_UNPUBLISH_VOLUME. With its socket a
// csi-attacher would mark volumes attached, and end their VolumeAttachments, without a call.
func TestADriverThatWasCalledAndIsReachedAtItsNodePluginIsBroken(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.volume("new")
		stop := v.start()
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(time.Second)
		stop()
		v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
			s := newBackendSession(v.backend)
			s.info.Capabilities.PublishUnpublish = false
			return s, nil
		}
		v.start()
		v.pass(time.Minute)
		d := v.hub.Drivers()[0]
		health := status.HealthOfDriver(d, nil, time.Now())
		if d.RecordedCalls != 1 || health.State != status.Broken || health.Reasons[0].Verdict != diagnosis.CapabilityMissing {
			t.Errorf("%d recorded calls, health %+v", d.RecordedCalls, health)
		}
		if log := v.log.String(); strings.Count(log, "Driver has no PUBLISH_UNPUBLISH_VOLUME, but") != 1 {
			t.Errorf("log %s", log)
		}
		found := status.Diagnose(status.DiagnosisInput{Attachment: status.Attachment{Name: va.Name, State: status.Attached}, Driver: &d, Now: time.Now()})
		if len(found) != 2 || found[1].Verdict != diagnosis.CapabilityMissing {
			t.Errorf("an attached volume is explained with %+v", found)
		}
		v.delete(va)
		v.pass(time.Minute)
		if got := v.get(va.Name); got == nil || !attach.HasFinalizer(got.Finalizers, attach.Finalizer(virtualDriver)) || got.Status.DetachError == nil ||
			!strings.Contains(got.Status.DetachError.Message, "correct the endpoint if it is that of the driver's node plugin") || len(v.backend.Books().Attached) != 1 {
			t.Errorf("%+v, want it to wait with an error: nothing has detached its volume", got)
		}
	})
}

func TestADriverThatWasNeverCalledNeedsNoAttention(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
			s := newBackendSession(v.backend)
			s.info.Capabilities.PublishUnpublish = false
			return s, nil
		}
		v.volume("v")
		v.start()
		v.create(v.attachment("v", "n"))
		v.pass(time.Minute)
		d := v.hub.Drivers()[0]
		if health := status.HealthOfDriver(d, nil, time.Now()); health.State != status.Fine || strings.Contains(v.log.String(), "record calls") {
			t.Errorf("health %+v", health)
		}
	})
}
