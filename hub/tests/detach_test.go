package tests

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestFailedDetachIsWrittenAndTriedAgainAlsoWhenNotFound(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: unpublish, Code: codes.NotFound, Count: 2}}})
		v.delete(va)
		v.pass(100 * time.Millisecond)
		if e := v.get(va.Name).Status.DetachError; e == nil || e.ErrorCode == nil || *e.ErrorCode != int32(codes.NotFound) {
			t.Errorf("detachError %+v, want code 5", e)
		}
		v.pass(time.Minute)
		v.wantGone(va.Name)
		if n := v.begun(unpublish); n != 3 {
			t.Errorf("%d calls, want 3", n)
		}
	})
}

// An error of an attach does not prove that the volume is detached.
func TestDeletionDetachesAtOnceWhateverTheAttachHasAnswered(t *testing.T) {
	eachInVirtualTime(t, map[string]fakecsi.Knobs{
		"the driver does not know the volume": failing(publish, codes.NotFound),
		"it fails after the effect":           {Fail: []fakecsi.Fault{{Method: publish, Code: codes.Internal, AfterEffect: true}}},
		"it has not answered": {Hang: []fakecsi.Hang{{Method: publish, AfterEffect: true}},
			Fail: []fakecsi.Fault{{Method: publish, Code: codes.Internal, AfterEffect: true}}},
	}, func(v *virtual, k fakecsi.Knobs) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		v.setKnobs(k)
		v.withNode("v")
		v.start()
		va := v.attach("v")[0]
		if got := v.get(va.Name); (got.Status.AttachError == nil) != (len(k.Hang) > 0) || !hasOwnFinalizer(got, virtualDriver) {
			v.t.Errorf("%+v, want the finalizer, and the error of the call", got)
		}
		v.delete(va)
		v.setKnobs(fakecsi.Knobs{ReleaseAll: true})
		v.pass(time.Second)
		v.wantGone(va.Name)
		v.wantNothingAttached()
		if n := v.begun(unpublish); n != 1 {
			v.t.Errorf("%d unpublishes, want 1", n)
		}
	})
}

func TestDetachAfterARestartNeedsNeitherNodeNorVolume(t *testing.T) {
	type row struct{ node, volume bool }
	eachInVirtualTime(t, map[string]row{"without the node": {node: true}, "without the volume": {volume: true}, "without both": {true, true}}, func(v *virtual, gone row) {
		stop := v.start()
		va := v.attached()
		stop()
		if gone.node {
			v.delete(testbed.CSINode{Node: "n"}, testbed.Node{Name: "n"})
		}
		if gone.volume {
			v.removeVolume("v")
		}
		v.delete(va)
		v.start()
		v.pass(time.Minute)
		v.wantGone(va.Name)
		v.wantCalls("v", "publish id-n", "unpublish id-n")
	})
}

func TestDetachUsesTheLastVolumeSeenWhenItIsGone(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.update(va.Name, func(va *storagev1.VolumeAttachment) { delete(va.Annotations, attach.AnnotationVolumeHandle) })
		v.removeVolume("v")
		v.pass(time.Second)
		v.delete(va)
		v.pass(time.Minute)
		v.wantGone(va.Name)
		v.wantNothingAttached()
	})
}

// A VolumeAttachment of which no handle is known waits for the PersistentVolume.
func TestDetachOfAnUnknownVolumeWaitsForItsPersistentVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		va := v.attachment("v", "n")
		v.write(bySidecar(va, "id-n"))
		v.start()
		v.pass(time.Second)
		v.delete(va)
		v.pass(time.Hour)
		v.wantDetachError(va.Name, "v")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "handle"})
		v.pass(time.Second)
		v.wantGone(va.Name)
		v.wantCalls("handle", "unpublish id-n")
	})
}

func TestDeletedVolumeKeepsItsFinalizerAsLongAsItIsAttached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.delete(testbed.PersistentVolume{Name: "v"})
		v.pass(time.Hour)
		if !hasOwnFinalizer(v.getVolume("v"), virtualDriver) {
			t.Fatal("it must be guarded while it is attached")
		}
		v.setKnobs(hanging(unpublish))
		v.delete(va)
		v.pass(time.Second)
		v.stripFinalizers(va.Name) // that the VolumeAttachment is gone does not mean that the volume is detached
		v.pass(time.Minute)
		if !v.hasVolume("v") {
			t.Error("the PersistentVolume is gone while its volume is being detached")
		}
		v.setKnobs(healed)
		v.pass(time.Minute)
		if v.hasVolume("v") {
			t.Error("the PersistentVolume is still there")
		}
		v.wantNothingAttached()
	})
}

// A hub that has just started knows no VolumeAttachments: the VolumeAttachment alone keeps the PersistentVolume.
func TestPersistentVolumeThatWasAttachedBeforeARestartKeepsItsFinalizer(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("v")
		va := v.attach("v")[0]
		v.attachedByAnother(va)
		v.delete(testbed.PersistentVolume{Name: "v"})
		v.start()
		v.pass(time.Hour)
		if !v.hasVolume("v") {
			t.Fatal("the PersistentVolume is gone while its volume is attached")
		}
		v.delete(va)
		v.pass(time.Hour)
		v.wantGone(va.Name)
		if v.hasVolume("v") {
			t.Error("the PersistentVolume is still there")
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
		v.wantDangling(1)
		if v.hasVolume("v") {
			t.Error("the PersistentVolume waits still")
		}
		v.setKnobs(healed)
		v.pass(time.Hour)
		v.wantNothingAttached()
		v.wantDangling(0)
	})
}

func TestPersistentVolumeDoesNotWaitForEverForADriverThatIsAway(t *testing.T) {
	eachInVirtualTime(t, map[string]func(*virtual){
		"it is uninstalled": (*virtual).cut,
		"it came back without PUBLISH_UNPUBLISH_VOLUME": func(v *virtual) {
			v.refuseToDetach("id-n", codes.Internal)
			v.hangUp()
		},
	}, func(v *virtual, leave func(*virtual)) {
		v.incapable(1)
		v.start()
		va := v.attached()
		leave(v)
		v.pass(time.Second) // the hub knows that the driver is away before the deletion comes
		v.delete(va, testbed.PersistentVolume{Name: "v"})
		v.pass(time.Minute)
		v.stripFinalizers(va.Name)
		v.pass(5 * time.Minute)
		if !v.hasVolume("v") {
			v.t.Error("the PersistentVolume went within minutes, though its volume is attached")
		}
		v.pass(time.Hour)
		v.wantDangling(1)
		if v.hasVolume("v") {
			v.t.Error("the PersistentVolume waits still")
		}
	})
}

// The node came back under another ID, and the driver does not know the old one any more: it was asked for ever, and the
// PersistentVolume never went.
func TestVolumeThatADriverDoesNotKnowAtItsOldNodeIDIsGivenUp(t *testing.T) {
	for _, code := range []codes.Code{codes.NotFound, codes.InvalidArgument} {
		inVirtualTime(t, func(v *virtual) {
			v.start()
			va := v.attached()
			v.refuseToDetach("id-n", code)
			v.register("n", "id-new")
			v.delete(va, testbed.PersistentVolume{Name: "v"})
			v.pass(time.Minute)
			v.wantGone(va.Name) // the driver detaches at the new ID
			v.wantDangling(1)
			if !v.hasVolume("v") {
				t.Error("the PersistentVolume is gone within a minute")
			}
			v.pass(time.Hour)
			v.wantDangling(0)
			if v.hasVolume("v") {
				t.Error("the PersistentVolume is there an hour later")
			}
			calls, reads := v.calls(unpublish, "v", "id-n"), v.api.Count("get", "volumeattachments")
			v.pass(3 * time.Hour)
			if more := v.calls(unpublish, "v", "id-n") - calls; more > 0 || calls > 40 {
				t.Errorf("%d calls in the first hour and %d in three after it, want few and none", calls, more)
			}
			if more := v.api.Count("get", "volumeattachments") - reads; more > 0 {
				t.Errorf("%d reads of VolumeAttachments in three hours after it", more)
			}
			if events := v.eventsWith("DetachGivenUp"); len(events) != 1 {
				t.Errorf("Events %q, want one that says that it was given up", events)
			}
		})
	}
}

func TestVolumeThatADriverDoesNotKnowIsGivenUp(t *testing.T) {
	race.Skip(t, race.Hours)
	type row struct {
		prepare func(*virtual)
		first   time.Duration // the VolumeAttachment is deleted for so long before it is stripped
	}
	eachInVirtualTime(t, map[string]row{
		"its finalizer was taken when its detach had failed for an hour": {func(*virtual) {}, time.Hour},
		// A proxy ends each connection after some minutes: no session is ever old enough to be believed.
		"no connection lasts": {func(v *virtual) {
			v.connect = func(_ context.Context, _ int, s *backendSession) error {
				s.info.Capabilities.ListPublishedNodes = false // its list would show the volume: it would be reported as dangling
				time.AfterFunc(10*time.Minute, s.Close)
				return nil
			}
		}, time.Second},
	}, func(v *virtual, c row) {
		c.prepare(v)
		v.start()
		va := v.attached()
		v.refuseToDetach("id-n", codes.NotFound)
		v.delete(va)
		v.pass(c.first)
		v.stripFinalizers(va.Name)
		v.delete(testbed.PersistentVolume{Name: "v"})
		v.pass(2 * 24 * time.Hour)
		calls := v.calls(unpublish, "v", "id-n")
		v.pass(3 * time.Hour)
		v.wantDangling(0)
		if v.hasVolume("v") || v.calls(unpublish, "v", "id-n") != calls {
			v.t.Errorf("PersistentVolume there: %v, %d calls more in three hours; want neither", v.hasVolume("v"), v.calls(unpublish, "v", "id-n")-calls)
		}
	})
}

// A driver that has just started may not have found its nodes yet.
func TestDriverThatHasJustStartedIsNotBelievedThatItKnowsNoVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.leaveAttached(codes.NotFound)
		for range 6 * 3 { // it crashes every ten minutes, for three hours
			v.pass(10 * time.Minute)
			v.hangUp()
		}
		v.setKnobs(healed)
		v.pass(10 * time.Minute)
		v.wantNothingAttached()
	})
}

// An upgrade of a driver has changed the form of its node IDs: all that was attached before is detached one day.
func TestFleetOfOldNodeIDsDoesNotKeepTheAPIServerBusy(t *testing.T) {
	race.Skip(t, race.Hours)
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.start()
		all := v.many("v", 40)
		v.pass(time.Minute)
		v.refuseToDetach("id-n", codes.NotFound)
		v.register("n", "id-new")
		v.deleteAll(all)
		v.pass(2 * time.Hour)
		calls, reads := v.ended(unpublish), v.api.Count("get", "volumeattachments")
		v.pass(time.Hour)
		if calls, reads := v.ended(unpublish)-calls, v.api.Count("get", "volumeattachments")-reads; calls+reads > 0 {
			t.Errorf("%d calls and %d reads in an hour for what is gone", calls, reads)
		}
	})
}

// The volume of a PersistentVolume that was recreated with another handle was detached, and what csi-attacher had
// attached stayed attached, with nobody told.
func TestDetachOfWhatASidecarAttachedSaysThatItsPersistentVolumeWasRecreated(t *testing.T) {
	type row struct {
		heal func(*virtual, testbed.VolumeAttachment)
		old  []string // calls
	}
	eachInVirtualTime(t, map[string]row{
		"somebody notes the old handle": {func(v *virtual, va testbed.VolumeAttachment) {
			v.update(va.Name, func(va *storagev1.VolumeAttachment) { va.Annotations[attach.AnnotationVolumeHandle] = "v" })
		}, []string{"unpublish id-n"}},
		// Then the new volume was detached as one that was left attached.
		"somebody removes the finalizer": {func(v *virtual, va testbed.VolumeAttachment) { v.stripFinalizers(va.Name) }, nil},
	}, func(v *virtual, c row) {
		v.withNode("v")
		va := v.attachment("v", "n")
		va.Name = fmt.Sprintf("csi-%x", sha256.Sum256([]byte("v"+virtualDriver+"n")))
		v.write(bySidecar(va, "id-n"))
		v.attachByHand("v", "id-n")
		v.pass(time.Minute)
		v.recreate(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "new"})
		v.start()
		v.pass(time.Minute)
		v.delete(va)
		v.pass(time.Hour)
		v.wantDetachError(va.Name, attach.AnnotationVolumeHandle)
		v.wantCalls("v")
		c.heal(v, va)
		v.pass(time.Hour)
		v.wantGone(va.Name)
		v.wantCalls("v", c.old...)
		v.wantCalls("new")
		v.wantDangling(0)
	})
}

// The driver did not list the new volume on the node: the old one was detached from under its Pods, and the new one
// attached in its place.
func TestAttachedVolumeIsNotReplacedByThatOfARecreatedPersistentVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.recreate(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "new"})
		v.pass(time.Hour)
		v.wantAttached(va.Name)
		v.wantCalls("v", "publish id-n")
		v.wantCalls("new")
		v.delete(va)
		v.pass(time.Minute)
		v.wantGone(va.Name)
		v.wantCalls("v", "publish id-n", "unpublish id-n")
		v.wantCalls("new")
	})
}

// Its PersistentVolume was removed by force before the hub came: nobody knows which volume it is about.
func TestAttachmentOfAnUnknownVolumeKeepsNoOtherFromBeingDetached(t *testing.T) {
	for _, name := range []string{"named-by-hand", "csi-" + strings.Repeat("0f", 32)} {
		inVirtualTime(t, func(v *virtual) {
			unknown := v.attachment("gone", "n")
			unknown.Name = name
			v.write(bySidecar(unknown, "id-n"))
			v.start()
			va := v.attached()
			v.delete(va)
			v.pass(time.Minute)
			v.wantGone(va.Name)
		})
	}
}
