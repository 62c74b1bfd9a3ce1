package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestVolumeInUseIsNotDetachedBecauseTheDriverNoLongerRequiresAttach(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	w.create(testbed.Node{Name: va.Node})
	inUse := func(value string) {
		t.Helper()
		patch := []byte(`{"status":{"volumesInUse":` + value + `}}`)
		if _, err := w.kube.CoreV1().Nodes().Patch(w.ctx, va.Node, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	inUse(`["kubernetes.io/csi/` + driver + `^v"]`)
	w.start()
	w.create(va)
	w.waitAttached(va)
	w.create(testbed.CSIDriver{Name: driver, NoAttach: true})
	got := w.waitForOne(va.Name, "explained", func(va *storagev1.VolumeAttachment) bool { return va.Status.DetachError != nil })
	if !strings.Contains(got.Status.DetachError.Message, "in use") || !got.Status.Attached || !backend.Books().IsAttached("v", "id-n") {
		t.Errorf("%+v: want it attached, and said that it is in use", got.Status)
	}
	inUse(`null`)
	w.waitForOne(va.Name, "finished", func(va *storagev1.VolumeAttachment) bool { return !va.Status.Attached && !hasOwnFinalizer(va, driver) })
	w.checkBooks(nil)
	w.delete(testbed.CSIDriver{Name: driver})
	w.waitAttached(va) // whatever comes back to requiring it is attached again
}

// wantWhole checks that volume v is attached and guarded, and its VolumeAttachment says so without an error; or all the contrary.
func (v *virtual) wantWhole(when string, attached bool) {
	v.t.Helper()
	got := v.get("v-n")
	if got.Status.Attached != attached || v.has("v", "id-n") != attached || hasOwnFinalizer(got, virtualDriver) != attached {
		v.t.Errorf("%s: attached %v, published %v, finalizers %v, want all %v", when, got.Status.Attached, v.has("v", "id-n"), got.Finalizers, attached)
	}
	if got.Status.AttachError != nil || got.Status.DetachError != nil {
		v.t.Errorf("%s: %+v %+v", when, got.Status.AttachError, got.Status.DetachError)
	}
}

// One write at a time fails, or its answer is lost.
func TestNothingSaysAttachedAndIsPublishedNowhereAfterAttachRequiredWasFalse(t *testing.T) {
	either := func(a, b func(fakekube.Request) bool) func(fakekube.Request) bool {
		return func(r fakekube.Request) bool { return a(r) || b(r) }
	}
	type row struct {
		fail        func(r fakekube.Request) bool
		fails, back time.Duration
	}
	rows := map[string]row{}
	for name, fail := range map[string]func(r fakekube.Request) bool{
		"nothing fails":                       func(fakekube.Request) bool { return false },
		"the status is not written":           patches("volumeattachments/status"),
		"the finalizer is not removed":        patches("volumeattachments"),
		"the Node is not read":                reads("nodes"),
		"neither status nor finalizer change": either(patches("volumeattachments"), patches("volumeattachments/status")),
	} {
		for _, fails := range []time.Duration{2 * time.Second, time.Hour} {
			for _, back := range []time.Duration{2 * time.Second, 3 * time.Hour} {
				rows[fmt.Sprintf("%s for %v, and it is true again after %v", name, fails, back)] = row{fail, fails, back}
			}
		}
	}
	eachInVirtualTime(t, rows, func(v *virtual, c row) {
		v.driver.Drift.Interval = 0 // a driver without LIST_VOLUMES_PUBLISHED_NODES
		v.start()
		v.attached()
		until := time.Now().Add(c.fails)
		v.reply(http.StatusInternalServerError, func(r fakekube.Request) bool { return c.fail(r) && time.Now().Before(until) })
		v.attachRequired(false)
		v.pass(c.back)
		if v.get("v-n").Status.Attached && !v.has("v", "id-n") {
			v.t.Error("it says attached, and is published nowhere")
		}
		if c.back > c.fails {
			v.wantWhole("attachRequired is false", false)
		}
		v.attachRequired(true)
		v.pass(3 * time.Hour)
		v.wantWhole("attachRequired is true again", true)
	})
}

func TestStatusIsWrittenBeforeTheDetachOfWhatIsNotBeingDeleted(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.setKnobs(hanging(unpublish))
		writes := v.patched()
		v.attachRequired(false)
		v.pass(time.Second)
		if got := v.get(va.Name); got.Status.Attached || !hasOwnFinalizer(got, virtualDriver) {
			t.Errorf("during the call: %+v, finalizers %v", got.Status, got.Finalizers)
		}
		v.setKnobs(healed)
		v.pass(time.Second)
		v.wantWhole("afterwards", false)
		if got := v.patched() - writes; got != 2 || v.begun(unpublish) != 1 {
			t.Errorf("%d writes and %d calls, want 2 and 1", got, v.begun(unpublish))
		}
		if n := v.metric("attach_hub_operations_total", "detach", "success"); n != 1 || !strings.Contains(v.log.String(), "Detached volume") {
			t.Errorf("%v detaches counted, want one, and logged", n)
		}
	})
}

// The status has said detached since before the call.
func TestFirstErrorOfADetachOfWhatIsNotBeingDeletedIsInTheStatus(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		v.start()
		va := v.attached()
		v.setKnobs(failingOnce(unpublish, codes.Internal))
		v.attachRequired(false)
		v.pass(time.Second)
		v.wantDetachError(va.Name, "Internal")
	})
}

// The Pod has started between the write of the status and the call.
func TestVolumeThatIsUsedOnceTheStatusIsWrittenIsNotDetachedBecauseAttachRequiredIsFalse(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.beforeEach(patches("volumeattachments/status"), func() { v.inUse("n", "v") })
		v.attachRequired(false)
		v.pass(time.Hour)
		v.wantDetachError(va.Name, `in use on node "n"`)
		v.wantUnpublishes("it is in use", 0, 0)
		v.attachRequired(true)
		v.pass(time.Second)
		v.wantWhole("attachRequired is true again", true)
	})
}

// beforeEach has f called right before each of some requests takes effect.
func (v *virtual) beforeEach(which func(fakekube.Request) bool, f func()) {
	v.reply(0, func(r fakekube.Request) bool {
		if which(r) {
			f()
		}
		return false
	})
}

// Another client, or a late write of an earlier run, says "attached".
func TestWhatSaysAttachedAfterItsDetachIsCorrected(t *testing.T) {
	eachInVirtualTime(t, map[string]bool{"attachRequired is false": false, "attachRequired is true": true}, func(v *virtual, required bool) {
		v.driver.Drift.Interval = 0
		v.start()
		va := v.attached()
		v.attachRequired(false)
		v.pass(time.Second)
		v.wantWhole("detached", false)
		v.api.HoldWatches("volumeattachments")
		v.update(va.Name, func(va *storagev1.VolumeAttachment) { va.Status.Attached = true })
		if required {
			v.attachRequired(true)
		}
		v.pass(time.Second)
		v.api.ReleaseWatches("volumeattachments")
		v.pass(time.Hour)
		v.wantWhole("an hour later", required)
	})
}

// The object lives on by the finalizer of somebody else, and the last write fails.
func TestWhatIsDetachedAndStillBeingDeletedDoesNotSayAttachedAfterAFailedWrite(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.update(va.Name, func(va *storagev1.VolumeAttachment) { va.Finalizers = append(va.Finalizers, "example.com/other") })
		failed := 0
		v.reply(http.StatusInternalServerError, func(r fakekube.Request) bool {
			if failed == 3 || !patches("volumeattachments/status")(r) {
				return false
			}
			failed++
			return true
		})
		v.delete(va)
		v.pass(time.Hour)
		v.wantUnpublishes("in the end", 1, 0)
		if got := v.get(va.Name); failed != 3 || got.Status.Attached {
			t.Errorf("%d writes failed: %+v", failed, got.Status)
		}
	})
}

func TestErrorOfADetachThatIsNotWantedAnyMoreLeavesTheStatus(t *testing.T) {
	eachInVirtualTime(t, map[string]bool{"at once": false, "after a restart": true}, func(v *virtual, restart bool) {
		stop := v.start()
		va := v.attached()
		v.inUse("n", "v")
		v.attachRequired(false)
		v.pass(time.Second)
		v.wantDetachError(va.Name, "in use")
		if restart {
			stop()
		}
		writes := v.patched()
		v.attachRequired(true)
		if restart {
			v.start()
		}
		v.pass(time.Second)
		v.wantWhole("attachRequired is true again", true)
		v.pass(time.Hour)
		if got := v.patched() - writes; got != 1 {
			v.t.Errorf("%d writes", got)
		}
	})
}

func (v *virtual) health() status.Health { return status.HealthOfDriver(v.status(), nil, time.Now()) }

func TestAttachRequiredThatBecomesFalseIsReportedOnceAndNeedsAttention(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.register("n", "id-n")
		vas := v.many("v", 9)
		v.pass(time.Second)
		if health := v.health(); health.State != status.Fine {
			t.Errorf("before: %+v", health)
		}
		v.inUse("n", "v0")
		v.attachRequired(false)
		v.pass(time.Hour)
		const text = "attachRequired is now false, volumes to detach: 9"
		if events := v.eventsWith(text); len(events) != 1 || events[0] != "Warning AttachRequiredFalse "+text || strings.Count(v.log.String(), text) != 1 {
			t.Errorf("Events: %q, log %s", events, v.log.String())
		}
		if left := v.backend.Books().Attached; len(left) != 1 || !v.has("v0", "id-n") {
			t.Errorf("attached: %v, want the one that is in use", left)
		}
		health := v.health()
		at := slices.IndexFunc(health.Reasons, func(r status.Reason) bool { return r.Verdict == diagnosis.AttachRequiredWrong })
		if health.State != status.Attention || at < 0 || !strings.Contains(health.Reasons[at].Text(time.Now()), "the hub detaches its volumes unless their node uses them") {
			t.Errorf("health: %+v", health)
		}
		v.attachRequired(true)
		v.pass(time.Hour)
		if health := v.health(); health.State != status.Fine {
			t.Errorf("in the end: %+v", health)
		}
		for _, va := range vas {
			v.wantAttached(va.Name)
		}
	})
}

const lostCapability = "the driver has no CONTROLLER_SERVICE, but VolumeAttachments record calls to it"

// The endpoint is that of the node plugin, or the controller starts without its capabilities.
func TestNothingIsMarkedAttachedForADriverThatHasLostItsCapability(t *testing.T) {
	eachInVirtualTime(t, map[string]func(*virtual, testbed.VolumeAttachment){
		"a VolumeAttachment records a call": func(*virtual, testbed.VolumeAttachment) {},
		"only this process knows of the call": func(v *virtual, va testbed.VolumeAttachment) {
			v.inUse("n", "v")
			v.vanish(va)
			v.pass(time.Second)
		},
	}, func(v *virtual, prepare func(*virtual, testbed.VolumeAttachment)) {
		v.driver.Drift.Interval = 0 // a driver without LIST_VOLUMES_PUBLISHED_NODES
		v.incapable(1)
		v.start()
		prepare(v, v.attached())
		v.hangUp()
		v.pass(5 * time.Second)
		v.withNode("w", "x")
		v.attach("w", "x")
		v.pass(time.Minute)
		for _, name := range []string{"w-n", "x-n"} {
			v.wantAttachError(name, lostCapability)
			if v.get(name).Status.Attached {
				v.t.Errorf("%s is marked attached without a call", name)
			}
		}
		v.hangUp() // the driver is right again
		v.pass(5 * time.Second)
		v.wantAttached("w-n", "x-n")
		v.wantCalls("w", "publish id-n")
	})
}

// The first VolumeAttachment that records a call comes after others were attached without one: another attacher works beside
// the hub, or did so until now.
func TestAttachIsRefusedOnceAVolumeAttachmentRecordsACall(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.incapable()
		v.withNode("v0", "v1", "v2", "called")
		v.start()
		v.attach("v0", "v1")
		v.wantAttached("v0-n", "v1-n")
		v.write(bySidecar(v.attachment("called", "n"), "id-n"))
		v.pass(time.Second)
		v.attach("v2")
		v.wantAttachError("v2-n", lostCapability)
		v.wantAttached("v0-n")
		if hasOwnFinalizer(v.get("v0-n"), virtualDriver) {
			t.Error("what was attached before has a finalizer")
		}
	})
}

// The node plugin of a driver reports the driver's name too, and no PUBLISH_UNPUBLISH_VOLUME. With its socket a
// csi-attacher would mark volumes attached, and end their VolumeAttachments, without a call.
func TestADriverThatWasCalledAndIsReachedAtItsNodePluginIsBroken(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		stop := v.start()
		va := v.attached()
		stop()
		v.incapable()
		v.start()
		v.pass(time.Minute)
		d, health := v.status(), v.health()
		if d.RecordedCalls != 1 || health.State != status.Broken || health.Reasons[0].Verdict != diagnosis.CapabilityMissing {
			t.Errorf("%d recorded calls, health %+v", d.RecordedCalls, health)
		}
		found := status.Diagnose(status.DiagnosisInput{Attachment: status.Attachment{Name: va.Name, State: status.Attached}, Driver: &d, Now: time.Now()})
		if len(found) != 2 || found[1].Verdict != diagnosis.CapabilityMissing {
			t.Errorf("an attached volume is explained with %+v", found)
		}
		v.delete(va)
		v.pass(time.Minute)
		v.wantDetachError(va.Name, "correct the endpoint if it is that of the driver's node plugin")
		if !hasOwnFinalizer(v.get(va.Name), virtualDriver) || !v.has("v", "id-n") {
			t.Error("want it to wait: nothing has detached its volume")
		}
	})
}
