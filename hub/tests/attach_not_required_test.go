package tests

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// attachRequired has somebody create the CSIDriver object again.
func (v *virtual) attachRequired(is bool) {
	v.t.Helper()
	v.delete(testbed.CSIDriver{Name: virtualDriver})
	v.create(testbed.CSIDriver{Name: virtualDriver, NoAttach: !is})
}

// checkAttached checks that a VolumeAttachment says "attached" only while its volume is, and whether it does.
func (v *virtual) checkAttached(when, name string, want bool) {
	v.t.Helper()
	got := v.get(name)
	published := v.backend.Books().IsAttached("v", "id-n")
	if got.Status.Attached != want || published != want || attach.HasFinalizer(got.Finalizers, attach.Finalizer(virtualDriver)) != want {
		v.t.Errorf("%s: attached %v, published %v, finalizers %v, want all %v", when, got.Status.Attached, published, got.Finalizers, want)
	}
	if got.Status.AttachError != nil || got.Status.DetachError != nil {
		v.t.Errorf("%s: %+v %+v", when, got.Status.AttachError, got.Status.DetachError)
	}
}

// One write at a time fails, or its answer is lost.
func TestNothingSaysAttachedAndIsPublishedNowhereAfterAttachRequiredWasFalse(t *testing.T) {
	for name, fail := range map[string]func(r fakekube.Request) bool{
		"nothing fails":                       func(fakekube.Request) bool { return false },
		"the status is not written":           func(r fakekube.Request) bool { return r.Resource == "volumeattachments/status" },
		"the finalizer is not removed":        func(r fakekube.Request) bool { return r.Resource == "volumeattachments" },
		"the Node is not read":                func(r fakekube.Request) bool { return r.Resource == "nodes" },
		"neither status nor finalizer change": func(r fakekube.Request) bool { return strings.HasPrefix(r.Resource, "volumeattachments") },
	} {
		t.Run(name, func(t *testing.T) {
			for _, fails := range []time.Duration{2 * time.Second, time.Hour} {
				for _, back := range []time.Duration{2 * time.Second, 24 * time.Hour} {
					inVirtualTime(t, func(v *virtual) {
						v.driver.Drift.Interval = 0 // a driver without LIST_VOLUMES_PUBLISHED_NODES
						v.start()
						va := v.attached()
						until := time.Now().Add(fails)
						v.api.Intercept(func(r fakekube.Request) int {
							if (r.Verb == "patch" || r.Resource == "nodes") && fail(r) && time.Now().Before(until) {
								return 500
							}
							return 0
						})
						v.attachRequired(false)
						v.pass(back)
						if got := v.get(va.Name); got.Status.Attached && !v.backend.Books().IsAttached("v", "id-n") {
							t.Errorf("attached %v, and published nowhere", got.Status.Attached)
						}
						if back > fails {
							v.checkAttached("attachRequired is false", va.Name, false)
						}
						v.attachRequired(true)
						v.pass(24 * time.Hour)
						v.checkAttached("attachRequired is true again", va.Name, true)
					})
				}
			}
		})
	}
}

func TestStatusIsWrittenBeforeTheDetachOfWhatIsNotBeingDeleted(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
		writes := v.patches()
		v.attachRequired(false)
		v.pass(time.Second)
		if got := v.get(va.Name); got.Status.Attached || !attach.HasFinalizer(got.Finalizers, attach.Finalizer(virtualDriver)) {
			t.Errorf("during the call: %+v, finalizers %v", got.Status, got.Finalizers)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true})
		v.pass(time.Second)
		v.checkAttached("afterwards", va.Name, false)
		if got := v.patches() - writes; got != 2 || v.unpublishes() != 1 {
			t.Errorf("%d writes and %d calls, want 2 and 1", got, v.unpublishes())
		}
	})
}

// patches returns how many writes of VolumeAttachments there were.
func (v *virtual) patches() int {
	n := 0
	for r, times := range v.api.Requests() {
		if r.Verb == "patch" && strings.HasPrefix(r.Resource, "volumeattachments") {
			n += times
		}
	}
	return n
}

// The Pod has started between the write of the status and the call.
func TestVolumeThatIsUsedOnceTheStatusIsWrittenIsNotDetachedBecauseAttachRequiredIsFalse(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "patch" && r.Resource == "volumeattachments/status" {
				v.inUse("n", volumeInUse)
			}
			return 0
		})
		v.attachRequired(false)
		v.pass(time.Hour)
		if got := v.get(va.Name); v.unpublishes() > 0 || got.Status.DetachError == nil || !strings.Contains(got.Status.DetachError.Message, `in use on node "n"`) {
			t.Errorf("%d unpublishes, %+v", v.unpublishes(), got.Status)
		}
		v.attachRequired(true)
		v.pass(time.Second)
		v.checkAttached("attachRequired is true again", va.Name, true)
	})
}

// Another client, or a late write of an earlier run, says "attached".
func TestWhatSaysAttachedAfterItsDetachIsCorrected(t *testing.T) {
	for name, required := range map[string]bool{"attachRequired is false": false, "attachRequired is true": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Drift.Interval = 0
				v.start()
				va := v.attached()
				v.attachRequired(false)
				v.pass(time.Second)
				v.checkAttached("detached", va.Name, false)
				v.api.HoldWatches("volumeattachments")
				got := v.get(va.Name)
				got.Status.Attached = true
				if _, err := v.kube.StorageV1().VolumeAttachments().UpdateStatus(t.Context(), got, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				if required {
					v.attachRequired(true)
				}
				v.pass(time.Second)
				v.api.ReleaseWatches("volumeattachments")
				v.pass(time.Hour)
				v.checkAttached("an hour later", va.Name, required)
			})
		})
	}
}

// The object lives on by the finalizer of somebody else, and the last write fails.
func TestWhatIsDetachedAndStillBeingDeletedDoesNotSayAttachedAfterAFailedWrite(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.addFinalizer(va.Name, "example.com/other")
		failed := 0
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "patch" && r.Resource == "volumeattachments/status" && failed < 3 {
				failed++
				return 500
			}
			return 0
		})
		v.delete(va)
		v.pass(time.Hour)
		if got := v.get(va.Name); failed != 3 || got.Status.Attached || v.unpublishes() != 1 {
			t.Errorf("%d writes failed, %d unpublishes: %+v", failed, v.unpublishes(), got.Status)
		}
	})
}

func (v *virtual) addFinalizer(name, finalizer string) {
	v.t.Helper()
	va := v.get(name)
	va.Finalizers = append(va.Finalizers, finalizer)
	if _, err := v.kube.StorageV1().VolumeAttachments().Update(v.t.Context(), va, metav1.UpdateOptions{}); err != nil {
		v.t.Fatal(err)
	}
}

func TestErrorOfADetachThatIsNotWantedAnyMoreLeavesTheStatus(t *testing.T) {
	for name, restart := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				stop := v.start()
				va := v.attached()
				v.inUse("n", volumeInUse)
				v.attachRequired(false)
				v.pass(time.Second)
				if got := v.get(va.Name); got.Status.DetachError == nil {
					t.Fatalf("%+v", got.Status)
				}
				if restart {
					stop()
				}
				writes := v.patches()
				v.attachRequired(true)
				if restart {
					v.start()
				}
				v.pass(time.Second)
				v.checkAttached("attachRequired is true again", va.Name, true)
				v.pass(time.Hour)
				if got := v.patches() - writes; got != 1 {
					t.Errorf("%d writes", got)
				}
			})
		})
	}
}

func TestAttachRequiredThatBecomesFalseIsReportedOnceAndNeedsAttention(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.register("n", "id-n")
		var used []string
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
			v.volume(name)
			v.create(v.attachment(name, "n"))
			used = append(used, name)
		}
		v.pass(time.Second)
		if health := v.healthOfDriver(); health.State != status.Fine {
			t.Errorf("before: %+v", health)
		}
		v.inUse("n", "kubernetes.io/csi/"+virtualDriver+"^a")
		v.attachRequired(false)
		v.pass(time.Hour)
		const text = "attachRequired is now false: detaching 9 volumes"
		if events := v.eventsWith(text); len(events) != 1 || events[0] != "Warning AttachRequiredFalse "+text {
			t.Errorf("Events: %q", events)
		}
		if log := v.log.String(); strings.Count(log, text) != 1 {
			t.Errorf("log: %s", log)
		}
		if left := v.backend.Books().Attached; len(left) != 1 || !v.backend.Books().IsAttached("a", "id-n") {
			t.Errorf("of %v are attached: %v", used, left)
		}
		health := v.healthOfDriver()
		at := slices.IndexFunc(health.Reasons, func(r status.Reason) bool { return r.Verdict == diagnosis.AttachRequiredWrong })
		if health.State != status.Attention || at < 0 || !strings.Contains(health.Reasons[at].Text(time.Now()), "the hub detaches its volumes unless their node uses them") {
			t.Errorf("health: %+v", health)
		}
		v.attachRequired(true)
		v.pass(time.Hour)
		if health := v.healthOfDriver(); health.State != status.Fine {
			t.Errorf("in the end: %+v", health)
		}
		for _, name := range used {
			if va := v.get(name + "-n"); !va.Status.Attached || !v.backend.Books().IsAttached(name, "id-n") {
				t.Errorf("%s: %+v", name, va.Status)
			}
		}
	})
}

func (v *virtual) healthOfDriver() status.Health {
	return status.HealthOfDriver(v.hub.Drivers()[0], nil, time.Now())
}
