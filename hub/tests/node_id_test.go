package tests

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Before attached:true is written, the target is compared with the CSINode again. The kubelet of a node that came
// back under another ID looks for the volume there.
func TestNodeThatGetsAnotherIDWhileItsVolumeIsAttachedHasItUnderTheNewIDOnly(t *testing.T) {
	eachInVirtualTime(t, map[string]func(v *virtual){
		"during the publish": func(v *virtual) {
			v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: publish, Node: "id-n", AfterEffect: true}}})
			v.attach("v")
			v.register("n", "id-new")
			v.pass(time.Second)
			v.setKnobs(healed)
		},
		"between the publish and a status that is written at the second try": func(v *virtual) {
			var failed atomic.Bool
			v.reply(http.StatusInternalServerError, func(r fakekube.Request) bool {
				if !patches("volumeattachments/status")(r) || failed.Swap(true) {
					return false
				}
				v.register("n", "id-new")
				return true
			})
			v.attach("v")
		},
	}, func(v *virtual, attachment func(v *virtual)) {
		v.withNode("v")
		v.start()
		v.pass(time.Second)
		attachment(v)
		v.pass(time.Minute)
		v.wantAttachedAs("id-new")
		v.wantCalls("v", "publish id-n", "unpublish id-n", "publish id-new")
	})
}

// wantAttachedAs checks that volume v is attached to node n, and noted with a node ID.
func (v *virtual) wantAttachedAs(nodeID string) {
	v.t.Helper()
	v.wantAttached("v-n")
	if noted := v.get("v-n").Annotations[attach.AnnotationNodeID]; noted != nodeID {
		v.t.Errorf("noted at %q, want %q", noted, nodeID)
	}
}

// A hub that takes over may be behind the last one, which has noted a node ID: it would detach the volume there, and
// attach it under an ID that the node does not have any more.
func TestNodeIDThatOnlyTheNoteShowsIsLookedUpBeforeTheVolumeIsMoved(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("v")
		v.start()
		v.pass(time.Second)
		v.api.HoldWatches("csinodes")
		v.register("n", "id-new")
		v.write(begun(v.attachment("v", "n"), "id-new"))
		v.pass(time.Minute)
		v.wantAttachedAs("id-new")
		v.wantCalls("v", "publish id-new")
	})
}

// What is attached is never moved from its noted target, and never due: another node ID and a restart are no reason to write or
// call anything.
func TestAttachedVolumeStaysWhereItIsNotedWhenItsNodeGetsAnotherID(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		stop := v.start()
		va := v.attached()
		before := v.get(va.Name)
		v.register("n", "id-new")
		v.pass(time.Hour)
		stop()
		v.start()
		v.pass(time.Hour)
		if after := v.get(va.Name); after.ResourceVersion != before.ResourceVersion {
			t.Errorf("written: %+v, was %+v", after, before)
		}
		v.wantCalls("v", "publish id-n")
	})
}

// The node ID that is noted beside the finalizer is all that another process would find the volume by.
func TestFinalizerStaysUntilTheVolumeIsDetachedWhereItWas(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour // it tries once
		stop := v.start()
		va := v.attached()
		stop()
		v.register("n", "id-new")
		v.refuseToDetach("id-n", codes.Internal)
		v.delete(va)
		stop = v.start()
		v.pass(time.Minute)
		v.wantDetachError(va.Name, "Internal")
		if !hasOwnFinalizer(v.get(va.Name), virtualDriver) {
			t.Error("the finalizer has gone before the volume is detached")
		}
		stop() // nothing is remembered
		v.setKnobs(healed)
		v.start()
		v.pass(time.Minute)
		v.wantGone(va.Name)
		v.wantCalls("v", "publish id-n", "unpublish id-n", "unpublish id-new")
	})
}

// The note of the old ID is replaced before the volume is attached under the new one, and after it is detached at the old one. A
// Pod does not wait for a driver that no longer knows the old one.
func TestVolumeIsDetachedAtItsOldNodeIDBeforeThatIsForgotten(t *testing.T) {
	type row struct {
		unpublish fakecsi.Knobs
		calls     []string
	}
	eachInVirtualTime(t, map[string]row{
		"the driver detaches it there":      {fakecsi.Knobs{}, []string{"unpublish id-n", "publish id-new"}},
		"the driver does not know it there": {failing(unpublish, codes.NotFound), []string{"publish id-new"}},
		"another node hangs":                {fakecsi.Knobs{Hang: []fakecsi.Hang{{Node: "id-m"}}}, []string{"unpublish id-n", "publish id-new"}},
	}, func(v *virtual, c row) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour // only the event can make it try again
		v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: publish, Node: "id-n", Code: codes.Internal, Count: 1, AfterEffect: true}}})
		v.register("n", "id-n")
		v.register("m", "id-m")
		v.volume("v", corev1.ReadWriteMany)
		v.start()
		v.attach("v")
		v.wantAttachError("v-n", "Internal")
		if noted := v.get("v-n").Annotations[attach.AnnotationNodeID]; noted != "id-n" || !v.has("v", "id-n") {
			v.t.Errorf("noted at %q, attached there %v", noted, v.has("v", "id-n"))
		}
		v.setKnobs(c.unpublish)
		if c.unpublish.Hang != nil {
			v.create(v.attachment("v", "m"))
			v.pass(time.Second)
		}
		v.register("n", "id-new")
		v.pass(time.Second)
		v.wantAttachedAs("id-new")
		v.wantCalls("v", c.calls...)
		v.setKnobs(healed)
	})
}

// The note of a VolumeAttachment is overwritten only after one unpublish at the old target has been answered, if only with an
// error; then the old target is a dangling publication.
func TestNoteOfATargetStaysUntilTheDriverWasAskedToDetachThere(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.create(testbed.Secret{Name: "publish", Data: map[string]string{"key": "one"}})
		v.register("n", "id-n")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Secret: secretRef("publish")})
		v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{
			{Method: publish, Code: codes.Internal, Count: 1, AfterEffect: true},
			{Method: unpublish, Node: "id-n", Code: codes.Internal},
		}})
		v.start()
		v.create(v.attachment("v", "n"))
		v.pass(100 * time.Millisecond)
		v.reply(http.StatusServiceUnavailable, reads("secrets"))
		v.register("n", "id-new")
		v.pass(time.Hour)
		if noted := v.get("v-n").Annotations[attach.AnnotationNodeID]; noted != "id-n" {
			t.Errorf("noted at %q before the driver was asked", noted)
		}
		v.wantDangling(0)
		v.api.Intercept(nil)
		v.pass(2 * time.Minute)
		v.wantAttachedAs("id-new")
		v.wantDangling(1)
		v.setKnobs(healed)
		v.pass(2 * time.Minute)
		v.wantCalls("v", "publish id-new", "unpublish id-n")
		v.wantDangling(0)
	})
}

// The ID that the first node had (an IP address, say) is the second one's by now.
func TestDetachDoesNotHitALivingAttachmentAtAReusedNodeID(t *testing.T) {
	eachInVirtualTime(t, map[string]string{"the node has another ID": "id-new", "the node is gone": ""}, func(v *virtual, now string) {
		v.start()
		v.register("one", "id")
		v.volume("v", corev1.ReadWriteMany)
		leaving, living := v.attachment("v", "one"), v.attachment("v", "two")
		v.create(leaving)
		v.pass(time.Second)
		if now == "" {
			v.delete(testbed.CSINode{Node: "one"})
		} else {
			v.register("one", now)
		}
		v.register("two", "id")
		v.create(living)
		v.pass(time.Second)
		v.delete(leaving)
		v.pass(time.Hour)
		if n := v.calls(unpublish, "v", "id"); n > 0 || !v.has("v", "id") {
			v.t.Errorf("%d calls to detach the volume from under the living attachment", n)
		}
		v.wantGone(leaving.Name)
		v.delete(living)
		v.pass(time.Minute)
		v.wantGone(living.Name)
		v.wantNothingAttached()
	})
}

// csi-attacher has attached it at an ID that its node has no more, and another node has now.
func TestDetachDoesNotHitWhatASidecarHasAttachedWhereItIsNoted(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-now")
		v.register("leaving", "id")
		v.volume("v", corev1.ReadWriteMany)
		v.write(bySidecar(v.attachment("v", "n"), "id"))
		v.attachByHand("v", "id")
		v.start()
		leaving := v.attachment("v", "leaving")
		v.create(leaving)
		v.pass(time.Second)
		v.delete(leaving)
		v.pass(time.Minute)
		v.wantGone(leaving.Name)
		if n := v.calls(unpublish, "v", "id"); n > 0 {
			t.Errorf("%d calls to detach it from under the living attachment", n)
		}
	})
}
