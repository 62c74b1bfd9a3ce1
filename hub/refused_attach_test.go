package hub_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// answers has the driver say where its volumes are: by ControllerGetVolume, or only by its list.
func (v *virtual) answers(getVolume bool) {
	v.t.Helper()
	v.options.Connect = func(context.Context, registry.Driver) (hub.Session, error) {
		s := newBackendSession(v.backend)
		s.info.Capabilities.GetVolume = getVolume
		return s, nil
	}
	v.turn(fakecsi.Knobs{Capabilities: append(fakecsi.DefaultCapabilities(), fakecsi.GetVolume)})
}

// A volume that was attached by hand to another node, or left there by a process that was killed, blocked its attach until
// somebody detached it by hand.
func TestAttachThatADanglingVolumeBlocksHealsAtOnce(t *testing.T) {
	for name, getVolume := range map[string]bool{"ControllerGetVolume": true, "ListVolumes": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.unexpected(registry.UnexpectedDetach)
				v.driver.Drift.Interval = time.Hour
				v.driver.Retry.Initial, v.driver.Retry.Max = 5*time.Hour, 5*time.Hour // no retry heals it
				v.answers(getVolume)
				v.dangling()
				v.start()
				v.pass(time.Minute)
				v.create(v.attachment("v", "m"))
				if v.pass(time.Second); !getVolume {
					v.pass(10 * time.Second) // a listing may have ended just now
				}
				if va := v.get("v-m"); !va.Status.Attached || v.unpublishes() != 1 {
					t.Errorf("not healed at once: %+v, %d unpublishes", va.Status, v.unpublishes())
				}
				if got := v.metric("attach_hub_drift_total"); got != 1 || len(v.eventsWith("DriftDetected")) != 1 {
					t.Errorf("counted %v times", got)
				}
				if seen := v.seen("v-m"); len(seen.Elsewhere) > 0 {
					t.Errorf("shown when it is attached: %+v", seen.Elsewhere)
				}
				if asked := v.backend.Books().Methods[fakecsi.ListVolumes].Ended; asked > 9 { // 2 without the first listing, which may begin at any time
					t.Errorf("%d listings", asked)
				}
			})
		})
	}
}

func TestAttachWaitsForTheDetachElsewhere(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.answers(true)
		v.dangling()
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
		v.start()
		v.pass(time.Second)
		v.create(v.attachment("v", "m"))
		v.pass(10 * time.Second)
		seen := v.seen("v-m")
		if seen.Waiting.Kind != status.WaitForUnowned || len(seen.Elsewhere) != 1 || !seen.Elsewhere[0].Detaching || seen.Elsewhere[0].Node != "n" {
			t.Errorf("waits for %+v, elsewhere %+v", seen.Waiting, seen.Elsewhere)
		}
		if e := v.get("v-m").Status.AttachError; e == nil || !strings.Contains(e.Message, "detaching it there first") {
			t.Errorf("error %+v", e)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true})
		v.pass(time.Second)
		if va := v.get("v-m"); !va.Status.Attached || va.Status.AttachError != nil {
			t.Errorf("%+v", va.Status)
		}
	})
}

func TestErrorOfARefusedAttachNamesTheNodeThatHasTheVolume(t *testing.T) {
	for name, c := range map[string]struct {
		getVolume bool
		make      func(v *virtual)
		want      string
		wantNode  string
	}{
		"ControllerGetVolume": {true, func(*virtual) {}, `the driver reports volume "v" on node "n" (node ID "id-n"), where no VolumeAttachment asks for it; not detaching it there because drift.unexpected is report`, "n"},
		"ListVolumes":         {false, func(*virtual) {}, `the driver reports volume "v" on node "n" (node ID "id-n"), where no VolumeAttachment asks for it; not detaching it there because drift.unexpected is report`, "n"},
		"node of another cluster": {true, func(v *virtual) {
			v.unexpected(registry.UnexpectedDetach)
			v.delete(testbed.CSINode{Node: "n"})
		}, `the driver reports volume "v" on node ID "id-n", where no VolumeAttachment asks for it; not detaching it there because no CSINode of this cluster has the node ID`, ""},
		"two PersistentVolumes": {true, func(v *virtual) {
			v.unexpected(registry.UnexpectedDetach)
			v.create(testbed.PersistentVolume{Name: "w", Driver: virtualDriver, Handle: "v"})
		}, `not detaching it there because two PersistentVolumes have the volume handle: `, "n"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.answers(c.getVolume)
				v.dangling()
				c.make(v)
				v.start()
				v.pass(time.Minute)
				v.create(v.attachment("v", "m"))
				v.pass(time.Minute)
				e := v.get("v-m").Status.AttachError
				if e == nil || !strings.Contains(e.Message, c.want) || !strings.Contains(e.Message, "is published to another node: id-n") || e.ErrorCode == nil || *e.ErrorCode != int32(codes.FailedPrecondition) {
					t.Errorf("error %+v, want %s", e, c.want)
				}
				seen := v.seen("v-m").Elsewhere
				if len(seen) != 1 || seen[0].Detaching || seen[0].Node != c.wantNode || seen[0].NodeID != "id-n" || seen[0].Asked.IsZero() || v.unpublishes() > 0 {
					t.Errorf("elsewhere %+v, %d unpublishes", seen, v.unpublishes())
				}
				if asked := v.backend.Books().Methods[fakecsi.ListVolumes].Ended; asked > 4 {
					t.Errorf("%d listings in two minutes", asked)
				}
				v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}}})
				v.pass(2 * time.Minute)
				if seen := v.seen("v-m").Elsewhere; len(seen) > 0 {
					t.Errorf("elsewhere after another error: %+v", seen)
				}
			})
		})
	}
}

func TestErrorOfARefusedAttachDoesNotWaitForTheAnswerWhereTheVolumeIs(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.answers(true)
		v.dangling()
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerGetVolume}}})
		v.start()
		v.pass(time.Second)
		v.create(v.attachment("v", "m"))
		v.pass(time.Second)
		if e := v.get("v-m").Status.AttachError; e == nil || !strings.Contains(e.Message, "is published to another node") {
			t.Errorf("error %+v", e)
		}
		if call := v.seen("v-m").Call; call.Method != "ControllerGetVolume" {
			t.Errorf("call in flight: %+v", call)
		}
		v.pass(time.Minute)
		if n := v.backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun; n < 3 {
			t.Errorf("%d tries in a minute: the answer is waited for too long", n)
		}
	})
}

// A Pod on n has the volume mounted, and its VolumeAttachment was lost.
func TestVolumeInUseOnItsNodeIsNotFreedForARefusedAttach(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.driver.Drift.Interval = time.Hour
		v.answers(true)
		v.dangling()
		v.inUse("n", "kubernetes.io/csi/"+virtualDriver+"^v")
		v.start()
		v.pass(time.Second)
		v.create(v.attachment("v", "m"))
		v.pass(time.Minute)
		if e := v.get("v-m").Status.AttachError; v.unpublishes() > 0 || e == nil || !strings.Contains(e.Message, "not detaching it there because it is in use on node n") {
			t.Errorf("%d unpublishes, error %+v", v.unpublishes(), e)
		}
		if got := v.metric("attach_hub_drift_total"); got != 1 || len(v.eventsWith("DriftDetected")) != 1 {
			t.Errorf("counted %v times, Events %q", got, v.eventsWith("DriftDetected"))
		}
		v.inUse("n")
		v.pass(10 * time.Minute)
		if va := v.get("v-m"); !va.Status.Attached || v.unpublishes() != 1 {
			t.Errorf("%d unpublishes when it is not in use any more, %+v", v.unpublishes(), va.Status)
		}
	})
}

// The VolumeAttachment elsewhere says why, and its detach frees the volume: nobody has to be asked.
func TestAttachThatAnotherVolumeAttachmentBlocksAsksNobody(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.answers(true)
		v.register("m", "id-m")
		v.start()
		v.attached()
		v.create(v.attachment("v", "m"))
		v.pass(5 * time.Minute)
		if b := v.backend.Books(); b.Methods[fakecsi.ControllerGetVolume].Begun > 0 || v.unpublishes() > 0 {
			t.Errorf("asked %d times, %d unpublishes", b.Methods[fakecsi.ControllerGetVolume].Begun, v.unpublishes())
		}
		if e := v.get("v-m").Status.AttachError; e == nil || strings.Contains(e.Message, "no VolumeAttachment") {
			t.Errorf("error %+v", e)
		}
	})
}

// lyingSession is a driver that reports volume v on a node whatever it has been asked to do.
type lyingSession struct{ *backendSession }

func (s lyingSession) VolumeNodes(context.Context, string) (csiclient.PublishedNodes, error) {
	return csiclient.PublishedNodes{IDs: []string{"id-n"}}, nil
}

func (s lyingSession) ListVolumes(context.Context, int) (csiclient.Published, error) {
	return csiclient.Published{"v": {IDs: []string{"id-n"}}}, nil
}

func TestDriverThatRefusesAnAttachWhateverIsDetachedIsNotCalledWithoutEnd(t *testing.T) {
	for name, getVolume := range map[string]bool{"ControllerGetVolume": true, "ListVolumes": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.unexpected(registry.UnexpectedDetach)
				v.dangling()
				v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.FailedPrecondition}}})
				v.options.Connect = func(context.Context, registry.Driver) (hub.Session, error) {
					s := lyingSession{newBackendSession(v.backend)}
					s.info.Capabilities.GetVolume = getVolume
					return s, nil
				}
				v.start()
				v.create(v.attachment("v", "m"))
				v.pass(10 * time.Minute)
				if n := v.backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun; n > 100 || v.unpublishes() > 100 || v.unpublishes() == 0 {
					t.Errorf("%d publishes and %d unpublishes in ten minutes", n, v.unpublishes())
				}
			})
		})
	}
}
