package tests

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// elsewhere returns what is said of where else the driver has the volume of a VolumeAttachment.
func (v *virtual) elsewhere(name string) []diagnosis.Diagnosis {
	d := v.hub.Drivers()[0]
	found := status.DiagnoseWork(status.DiagnosisInput{Attachment: v.seen(name), Driver: &d, Now: time.Now()})
	return slices.DeleteFunc(found, func(d diagnosis.Diagnosis) bool { return d.Verdict != diagnosis.Dangling })
}

// A volume that was attached by hand to another node, or left there by a process that was killed, blocked its attach until
// somebody detached it by hand.
func TestAttachThatADanglingVolumeBlocksHealsAfterTwoListings(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.driver.Drift.Interval = time.Hour
		v.dangling()
		v.start()
		v.create(v.attachment("v", "m"))
		v.pass(time.Second)
		if e := v.get("v-m").Status.AttachError; e == nil || !strings.Contains(e.Message, "is published to another node: id-n") || v.unpublishes() > 0 {
			t.Errorf("error %+v, %d unpublishes before a listing", e, v.unpublishes())
		}
		v.pass(2 * time.Hour)
		if va := v.get("v-m"); !va.Status.Attached || v.unpublishes() != 1 {
			t.Errorf("not healed: %+v, %d unpublishes", va.Status, v.unpublishes())
		}
		if seen := v.elsewhere("v-m"); len(seen) > 0 {
			t.Errorf("shown when it is attached: %+v", seen)
		}
	})
}

func TestAttachWaitsForTheDetachElsewhere(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.driver.Timeout = time.Hour
		v.dangling()
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
		v.start()
		v.create(v.attachment("v", "m"))
		v.pass(5 * time.Minute)
		seen, elsewhere := v.seen("v-m"), v.elsewhere("v-m")
		if seen.Waiting.Kind != status.WaitForDanglingDetach || len(elsewhere) != 1 || !strings.HasPrefix(elsewhere[0].Actions[0], "Wait: the hub detaches it there") || !strings.Contains(elsewhere[0].Fact, "(node n)") {
			t.Errorf("waits for %+v, elsewhere %+v", seen.Waiting, elsewhere)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true})
		v.pass(time.Second)
		if va := v.get("v-m"); !va.Status.Attached || va.Status.AttachError != nil {
			t.Errorf("%+v", va.Status)
		}
	})
}

func TestViewOfARefusedAttachNamesTheNodeThatHasTheVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.dangling()
		v.start()
		v.create(v.attachment("v", "m"))
		v.pass(5 * time.Minute)
		seen := v.elsewhere("v-m")
		if len(seen) != 1 || !strings.Contains(seen[0].Fact, "at node ID id-n (node n)") || len(seen[0].Commands) == 0 || seen[0].Since.IsZero() || v.unpublishes() > 0 {
			t.Errorf("elsewhere %+v, %d unpublishes", seen, v.unpublishes())
		}
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}}})
		v.pass(2 * time.Minute)
		if seen := v.elsewhere("v-m"); len(seen) > 0 {
			t.Errorf("elsewhere after another error: %+v", seen)
		}
	})
}

// A Pod on n has the volume mounted, and its VolumeAttachment was lost.
func TestVolumeInUseOnItsNodeIsNotFreedForARefusedAttach(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.dangling()
		v.inUse("n", "kubernetes.io/csi/"+virtualDriver+"^v")
		v.start()
		v.create(v.attachment("v", "m"))
		v.pass(5 * time.Minute)
		seen := v.elsewhere("v-m")
		if v.unpublishes() > 0 || len(seen) != 1 || !strings.Contains(seen[0].Detail, "the hub does not detach it because it is in use on node n") {
			t.Errorf("%d unpublishes, elsewhere %+v", v.unpublishes(), seen)
		}
		v.inUse("n")
		v.pass(10 * time.Minute)
		if va := v.get("v-m"); !va.Status.Attached || v.unpublishes() != 1 {
			t.Errorf("%d unpublishes when it is not in use any more, %+v", v.unpublishes(), va.Status)
		}
	})
}

// lyingSession is a driver that reports volume v on a node whatever it has been asked to do.
type lyingSession struct{ *backendSession }

func (s lyingSession) ListVolumes(context.Context, int) (csiclient.Published, time.Duration, error) {
	return csiclient.Published{"v": {IDs: []string{"id-n"}}}, 0, nil
}

func TestDriverThatRefusesAnAttachWhateverIsDetachedIsNotCalledWithoutEnd(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.dangling()
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.FailedPrecondition}}})
		v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
			return lyingSession{newBackendSession(v.backend)}, nil
		}
		v.start()
		v.create(v.attachment("v", "m"))
		v.pass(10 * time.Minute)
		if n := v.backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun; n > 100 || v.unpublishes() > 100 || v.unpublishes() == 0 {
			t.Errorf("%d publishes and %d unpublishes in ten minutes", n, v.unpublishes())
		}
	})
}
