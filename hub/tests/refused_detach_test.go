package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// attached makes a volume that a hub has attached to node n as id-n.
func (v *virtual) attached() testbed.VolumeAttachment {
	v.t.Helper()
	v.register("n", "id-n")
	v.volume("v")
	va := v.attachment("v", "n")
	v.create(va)
	v.pass(time.Second)
	if got := v.get(va.Name); got == nil || !got.Status.Attached {
		v.t.Fatalf("not attached: %+v", got)
	}
	return va
}

func (v *virtual) refuseToDetach(nodeID string, code codes.Code) {
	v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Node: nodeID, Code: code}}})
}

// leaveAttached makes a volume that stays attached to node n as id-n when its VolumeAttachment is gone: the
// driver refuses to detach it with a code.
func (v *virtual) leaveAttached(code codes.Code) {
	v.t.Helper()
	va := v.attached()
	v.refuseToDetach("id-n", code)
	v.deleteWithoutDetach(va)
}

// connectOnceWithUnpublish has the driver come back without PUBLISH_UNPUBLISH_VOLUME after its first session,
// which end ends.
func (v *virtual) connectOnceWithUnpublish() (end func()) {
	var sessions []*backendSession
	v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
		s := newBackendSession(v.backend)
		s.info.Capabilities.PublishUnpublish = len(sessions) == 0
		sessions = append(sessions, s)
		return s, nil
	}
	return func() { sessions[0].Close() }
}

// danglingCount is how many dangling publications the hub shows.
func (v *virtual) danglingCount() int {
	n := 0
	for _, d := range v.hub.Drivers() {
		n += len(d.Dangling)
	}
	return n
}

// The node came back under another ID, and the driver does not know the old one any more: it was asked for ever, and the
// PersistentVolume never went.
func TestVolumeThatADriverDoesNotKnowAtItsOldNodeIDIsGivenUp(t *testing.T) {
	for _, code := range []codes.Code{codes.NotFound, codes.InvalidArgument} {
		t.Run(code.String(), func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.start()
				va := v.attached()
				v.refuseToDetach("id-n", code)
				v.register("n", "id-new")
				v.delete(va, testbed.PersistentVolume{Name: "v"})
				v.pass(time.Minute)
				if v.get(va.Name) != nil {
					t.Fatal("the VolumeAttachment is there, though the driver detaches at the new ID")
				}
				if !v.hasVolume("v") || v.danglingCount() != 1 {
					t.Errorf("PersistentVolume there: %v, %d volumes said to be left attached; want it kept, and one", v.hasVolume("v"), v.danglingCount())
				}
				v.pass(time.Hour)
				if v.hasVolume("v") || v.danglingCount() != 0 {
					t.Errorf("an hour later: PersistentVolume there: %v, %d volumes said to be left attached", v.hasVolume("v"), v.danglingCount())
				}
				calls, reads := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n"), v.api.Count("get", "volumeattachments")
				v.pass(2 * 24 * time.Hour)
				if more := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n") - calls; more > 0 || calls > 40 {
					t.Errorf("%d calls in the first hour and %d in two days after it, want few and none", calls, more)
				}
				if more := v.api.Count("get", "volumeattachments") - reads; more > 0 {
					t.Errorf("%d reads of VolumeAttachments in two days after it", more)
				}
				if events := v.eventsWith("DetachGivenUp"); len(events) != 1 {
					t.Errorf("Events %q, want one that says that it was given up", events)
				}
			})
		})
	}
}

// Somebody takes the finalizer of a VolumeAttachment whose detach does not succeed.
func TestVolumeWhoseFinalizerWasTakenIsGivenUpWhenTheDriverDoesNotKnowIt(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.refuseToDetach("id-n", codes.NotFound)
		v.delete(va)
		v.pass(time.Hour)
		v.stripFinalizers(va.Name)
		v.delete(testbed.PersistentVolume{Name: "v"})
		v.pass(time.Hour)
		calls := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n")
		v.pass(24 * time.Hour)
		if v.hasVolume("v") || v.danglingCount() != 0 || v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n") != calls {
			t.Errorf("after a day: PersistentVolume there: %v, %d said to be left attached, %d calls more; want none of it",
				v.hasVolume("v"), v.danglingCount(), v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n")-calls)
		}
	})
}

// What the driver may do later is tried for ever, and nobody waits for it for ever.
func TestVolumeThatCannotBeDetachedDoesNotKeepItsPersistentVolumeForEver(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.leaveAttached(codes.Internal)
		v.delete(testbed.PersistentVolume{Name: "v"})
		v.pass(5 * time.Minute)
		if !v.hasVolume("v") {
			t.Error("the PersistentVolume went within minutes, though its volume may be attached")
		}
		v.pass(time.Hour)
		if v.hasVolume("v") || v.danglingCount() != 1 {
			t.Errorf("PersistentVolume there: %v, %d volumes said to be left attached; want it gone, and one", v.hasVolume("v"), v.danglingCount())
		}
		if n := v.metric("attach_hub_dangling_publications"); n != 1 {
			t.Errorf("attach_hub_dangling_publications is %v, want 1", n)
		}
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(time.Hour)
		if len(v.backend.Books().Attached) > 0 || v.danglingCount() != 0 {
			t.Errorf("attached %v, %d said to be left attached; want none when the driver can", v.backend.Books().Attached, v.danglingCount())
		}
	})
}

// An upgrade of a driver has changed the form of its node IDs: all that was attached before is detached one day.
func TestFleetOfOldNodeIDsDoesNotKeepTheAPIServerBusy(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		const n = 100
		v.register("n", "id-n")
		var all []testbed.Object
		for i := range n {
			name := fmt.Sprint("v", i)
			v.volume(name)
			all = append(all, v.attachment(name, "n"))
		}
		v.start()
		v.create(all...)
		v.pass(time.Minute)
		v.refuseToDetach("id-n", codes.NotFound)
		v.register("n", "id-new")
		v.delete(all...)
		v.pass(2 * time.Hour)
		calls, reads := v.backend.Books().Methods[fakecsi.ControllerUnpublishVolume].Ended, v.api.Count("get", "volumeattachments")
		v.pass(time.Hour)
		if calls, reads := v.backend.Books().Methods[fakecsi.ControllerUnpublishVolume].Ended-calls, v.api.Count("get", "volumeattachments")-reads; calls+reads > 0 {
			t.Errorf("%d calls and %d reads in an hour for what is gone", calls, reads)
		}
	})
}

// A driver that has just started may not have found its nodes yet.
func TestDriverThatHasJustStartedIsNotBelievedThatItKnowsNoVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		var sessions []*backendSession
		connect := v.options.Connect
		v.options.Connect = func(ctx context.Context, d registry.Driver) (s hubdriver.Session, err error) {
			s, err = connect(ctx, d)
			sessions = append(sessions, s.(*backendSession))
			return s, err
		}
		v.start()
		v.leaveAttached(codes.NotFound)
		for range 6 * 12 { // it crashes every ten minutes, for half a day
			v.pass(10 * time.Minute)
			sessions[len(sessions)-1].Close()
		}
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(10 * time.Minute)
		if len(v.backend.Books().Attached) > 0 {
			t.Error("the volume was given up, and stays attached")
		}
	})
}

// The ID that the first node had (an IP address, say) is the second one's by now.
func TestDetachDoesNotHitALivingAttachmentAtAReusedNodeID(t *testing.T) {
	for name, old := range map[string]string{"the node has another ID": "id-new", "the node is gone": ""} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.start()
				v.register("one", "id")
				v.volume("v", corev1.ReadWriteMany)
				leaving, living := v.attachment("v", "one"), v.attachment("v", "two")
				v.create(leaving)
				v.pass(time.Second)
				if old == "" {
					v.delete(testbed.CSINode{Node: "one"})
				} else {
					v.register("one", old)
				}
				v.register("two", "id")
				v.create(living)
				v.pass(time.Second)
				v.delete(leaving)
				v.pass(time.Hour)
				if n := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id"); n > 0 || !v.backend.Books().IsAttached("v", "id") {
					t.Errorf("%d calls to detach the volume from under the living attachment", n)
				}
				if v.get(leaving.Name) != nil {
					t.Error("the leaving one is still there")
				}
				v.delete(living)
				v.pass(time.Minute)
				if v.get(living.Name) != nil || len(v.backend.Books().Attached) > 0 {
					t.Errorf("attached %v at the end, want nothing", v.backend.Books().Attached)
				}
			})
		})
	}
}

// A driver came back without PUBLISH_UNPUBLISH_VOLUME: nobody can be asked, and nobody may wait for ever.
func TestVolumeThatNobodyCanDetachDoesNotKeepItsPersistentVolumeForEver(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		endSession := v.connectOnceWithUnpublish()
		v.start()
		v.leaveAttached(codes.Internal)
		v.delete(testbed.PersistentVolume{Name: "v"})
		endSession()
		v.pass(time.Hour)
		if v.hasVolume("v") || v.danglingCount() != 1 {
			t.Errorf("PersistentVolume there: %v, %d volumes said to be left attached; want it gone, and one", v.hasVolume("v"), v.danglingCount())
		}
	})
}
