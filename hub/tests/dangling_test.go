package tests

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// unexpected has the hub act on volumes that no VolumeAttachment asks for.
func (v *virtual) unexpected(action registry.UnexpectedAction) {
	v.driver.Drift.Unexpected = action
}

// attachByHand attaches a volume at a node ID behind the cluster's back.
func (v *virtual) attachByHand(volume, nodeID string) {
	v.t.Helper()
	v.turn(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: volume, Node: nodeID}}})
}

// unpublishes is how often the driver was asked to unpublish.
func (v *virtual) unpublishes() int {
	return v.backend.Books().Methods[fakecsi.ControllerUnpublishVolume].Begun
}

// dangled returns what the status shows of volumes where no VolumeAttachment asks for them.
func (v *virtual) dangled() []status.DanglingPublication {
	v.t.Helper()
	d := v.hub.Drivers()[0]
	if len(d.Dangling) != d.DanglingCount || v.metric("attach_hub_dangling_publications") != float64(d.DanglingCount) {
		v.t.Errorf("%d are shown, %d counted, and the metric says %v", len(d.Dangling), d.DanglingCount, v.metric("attach_hub_dangling_publications"))
	}
	return d.Dangling
}

// dangling has a volume on node n, where no VolumeAttachment asks for it.
func (v *virtual) dangling() {
	v.t.Helper()
	v.register("n", "id-n")
	v.register("m", "id-m")
	v.volume("v")
	v.attachByHand("v", "id-n")
}

func TestDanglingVolumeIsReportedOnceAndLeftAlone(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedReport)
		v.dangling()
		v.start()
		v.pass(time.Hour)
		shown := v.dangled()
		if len(shown) != 1 || !shown[0].Listed || !shown[0].ReportOnly || shown[0].Node != "n" || shown[0].NodeID != "id-n" || shown[0].PersistentVolume != "v" || shown[0].VolumeHandle != "v" {
			t.Errorf("shown: %+v", shown)
		}
		events := v.eventsWith("DriftDetected")
		if len(events) != 1 || !strings.Contains(events[0], `volume "v" on node "n" (node ID "id-n") without a VolumeAttachment; not detaching it there because drift.unexpected is report`) {
			t.Errorf("Events: %q", events)
		}
		if got := v.metric("attach_hub_drift_total"); got != 1 || v.unpublishes() > 0 {
			t.Errorf("counted %v times, %d unpublishes", got, v.unpublishes())
		}
		listings := v.backend.Books().Methods[fakecsi.ListVolumes].Ended
		if listings > 65 {
			t.Errorf("%d listings in an hour: what is reported already needs no confirmation", listings)
		}
		v.turn(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}}})
		v.pass(2 * time.Minute)
		if shown := v.dangled(); len(shown) > 0 {
			t.Errorf("shown when it is detached: %+v", shown)
		}
		v.attachByHand("v", "id-n")
		v.pass(5 * time.Minute)
		if got := v.metric("attach_hub_drift_total"); got != 2 || len(v.eventsWith("DriftDetected")) != 1 {
			t.Errorf("counted %v times after it came back", got)
		}
	})
}

func TestVolumeThatIsReportedIsNotShownOnceItIsAskedFor(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedReport)
		v.dangling()
		v.start()
		v.pass(2 * time.Minute)
		if len(v.dangled()) != 1 {
			t.Fatal("not reported")
		}
		v.create(v.attachment("v", "n"))
		v.pass(time.Second)
		if shown := v.dangled(); len(shown) > 0 {
			t.Errorf("shown: %+v", shown)
		}
	})
}

// A driver that wraps this one, say.
func TestDanglingVolumeIsLeftAloneWhereAVolumeAttachmentOfAnotherAttacherNamesIt(t *testing.T) {
	for node, want := range map[string]int{"n": 0, "m": 1} {
		t.Run(node, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.unexpected(registry.UnexpectedDetach)
				v.dangling()
				va := v.attachment("v", node).Build()
				va.Spec.Attacher, va.Status.Attached = "wrapper.example.com", true
				if _, err := v.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				v.start()
				v.pass(5 * time.Minute)
				if got := v.unpublishes(); got != want || len(v.dangled()) > 0 {
					t.Errorf("%d unpublishes, want %d, shown: %+v", got, want, v.dangled())
				}
				v.delete(testbed.VolumeAttachment{Name: va.Name})
				v.pass(5 * time.Minute)
				if v.unpublishes() != 1 {
					t.Errorf("%d unpublishes when it is gone", v.unpublishes())
				}
			})
		})
	}
}

func TestVolumeThatIsReportedIsNotShownWhereAVolumeAttachmentOfAnotherAttacherNamesIt(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedReport)
		v.dangling()
		v.start()
		v.pass(2 * time.Minute)
		va := v.attachment("v", "n").Build()
		va.Spec.Attacher = "wrapper.example.com"
		if _, err := v.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.pass(time.Second)
		if shown := v.dangled(); len(shown) > 0 {
			t.Errorf("shown: %+v", shown)
		}
	})
}

func TestDanglingVolumeIsDetachedAfterTwoListings(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.dangling()
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
		v.start()
		for began := time.Now(); v.unpublishes() == 0 && time.Since(began) < 5*time.Minute; {
			v.pass(time.Second)
		}
		if got := v.backend.Books().Methods[fakecsi.ListVolumes].Ended; got != 2 {
			t.Errorf("detached after %d listings, want 2", got)
		}
		shown := v.dangled()
		if len(shown) != 1 || !shown[0].Listed || shown[0].ReportOnly || shown[0].Tries == 0 || shown[0].LastError == "" {
			t.Errorf("shown while the detach fails: %+v", shown)
		}
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(2 * time.Minute)
		failed := v.unpublishes()
		v.pass(time.Hour)
		if b := v.backend.Books(); len(b.Attached) > 0 || len(v.dangled()) > 0 || v.unpublishes() != failed {
			t.Errorf("attached %v, shown %+v, %d unpublishes after the detach", b.Attached, v.dangled(), v.unpublishes()-failed)
		}
		events := v.eventsWith("")
		if !slices.ContainsFunc(events, func(e string) bool {
			return strings.Contains(e, "DriftDetected") && strings.HasSuffix(e, "; detaching it there")
		}) || !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "DetachFailed") }) {
			t.Errorf("Events: %q", events)
		}
		if got := v.metric("attach_hub_drift_total"); got != 1 {
			t.Errorf("counted %v times", got)
		}
	})
}

// Each case is one reason to leave a volume alone: without it, the volume is detached.
func TestVolumeThatMayNotBeTheHubsToDetachIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		make func(v *virtual)
		left bool
	}{
		"dangling":            {func(*virtual) {}, false},
		"no PersistentVolume": {func(v *virtual) { v.delete(testbed.PersistentVolume{Name: "v"}) }, true},
		"of another driver's": {func(v *virtual) {
			v.delete(testbed.PersistentVolume{Name: "v"})
			v.create(testbed.PersistentVolume{Name: "o", Driver: "other.example.com", Handle: "v"})
		}, true},
		"also of another driver's": {func(v *virtual) {
			v.create(testbed.PersistentVolume{Name: "o", Driver: "other.example.com", Handle: "v"})
		}, true},
		"two PersistentVolumes": {func(v *virtual) { v.create(testbed.PersistentVolume{Name: "o", Driver: virtualDriver, Handle: "v"}) }, true},
		"node of no CSINode":    {func(v *virtual) { v.delete(testbed.CSINode{Node: "n"}) }, true},
		"node of another driver's": {func(v *virtual) {
			v.delete(testbed.CSINode{Node: "n"})
			v.create(testbed.CSINode{Node: "n", Drivers: map[string]string{"other.example.com": "id-n"}})
		}, true},
		"attachRequired is false": {func(v *virtual) { v.create(testbed.CSIDriver{Name: virtualDriver, NoAttach: true}) }, true},
		"attached, as noted":      {func(v *virtual) { v.attachedBySidecar("va", "v", "id-n") }, true},
		"missing where it is attached": {func(v *virtual) {
			v.driver.Drift.Action = registry.DriftReport
			v.attachedBySidecar("va", "v", "id-o")
			v.register("n", "id-o")
			v.register("o", "id-n")
		}, true},
		"asked for by an unknown volume": {func(v *virtual) { v.attachedBySidecar("va", "gone", "id-n") }, true},
		// Volume a had handle v when csi-attacher attached it.
		"may be that of a recreated PersistentVolume": {func(v *virtual) {
			v.driver.Drift.Action = registry.DriftReport
			v.create(testbed.PersistentVolume{Name: "a", Driver: virtualDriver, Handle: "w"})
			v.attachedBySidecar("va", "a", "id-n")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.unexpected(registry.UnexpectedDetach)
				v.dangling()
				c.make(v)
				v.start()
				v.pass(5 * time.Minute)
				if left := v.unpublishes() == 0; left != c.left {
					t.Errorf("left alone: %v, want %v\n%s", left, c.left, v.log.String())
				}
				if shown := v.dangled(); len(shown) > 0 || c.left && (v.metric("attach_hub_drift_total") > 0) != slices.Contains([]string{"missing where it is attached", "may be that of a recreated PersistentVolume"}, name) {
					t.Errorf("shown: %+v, counted %v", shown, v.metric("attach_hub_drift_total"))
				}
			})
		})
	}
}

// The answer to a listing is made, and held back until the volume is detached.
func TestVolumeThatWasDetachedDuringTheListingIsNotDetachedAgain(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ListVolumes, AfterEffect: true}}})
		v.pass(50 * time.Second * 3 / 2)
		if v.backend.Books().Methods[fakecsi.ListVolumes].InFlight.Now != 1 {
			t.Fatal("no listing is in flight")
		}
		v.delete(va)
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{ReleaseAll: true})
		v.pass(5 * time.Minute)
		if v.unpublishes() != 1 || v.metric("attach_hub_drift_total") > 0 {
			t.Errorf("%d unpublishes, want 1; counted %v times", v.unpublishes(), v.metric("attach_hub_drift_total"))
		}
	})
}

func TestVolumeAttachmentThatComesBeforeTheDetachKeepsTheVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.dangling()
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
		v.start()
		v.pass(2 * time.Minute)
		failed := v.unpublishes()
		if failed == 0 {
			t.Fatal("no detach has begun")
		}
		v.create(v.attachment("v", "n"))
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(10 * time.Minute)
		if va := v.get("v-n"); va == nil || !va.Status.Attached || v.unpublishes() != failed || len(v.dangled()) > 0 {
			t.Errorf("VolumeAttachment %+v, %d unpublishes more, shown %+v", va, v.unpublishes()-failed, v.dangled())
		}
	})
}

// A detach that fails is tried for as long as it may be the hub's to make.
func TestReasonToLeaveAVolumeAloneEndsItsDetach(t *testing.T) {
	for name, change := range map[string]func(v *virtual){
		"second PersistentVolume": func(v *virtual) { v.create(testbed.PersistentVolume{Name: "o", Driver: virtualDriver, Handle: "v"}) },
		"PersistentVolume gone":   func(v *virtual) { v.delete(testbed.PersistentVolume{Name: "v"}) },
		"node gone":               func(v *virtual) { v.delete(testbed.CSINode{Node: "n"}) },
		"not listed any more":     func(v *virtual) { v.turn(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}}}) },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.unexpected(registry.UnexpectedDetach)
				v.dangling()
				v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
				v.start()
				v.pass(2 * time.Minute)
				change(v)
				v.pass(2 * time.Minute)
				before := v.unpublishes()
				v.pass(time.Hour)
				if n := v.unpublishes() - before; n > 0 || before == 0 || len(v.dangled()) > 0 {
					t.Errorf("%d unpublishes before, %d after it, shown %+v", before, n, v.dangled())
				}
			})
		})
	}
}

func TestChangeToReportEndsTheDetachOfWhatOnlyAListingHasShown(t *testing.T) {
	for name, retry := range map[string]time.Duration{"before the next listing": 500 * time.Millisecond, "by the next listing": 5 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) { v.changeToReport(retry) })
		})
	}
}

// changeToReport changes drift.unexpected while a detach is tried again.
func (v *virtual) changeToReport(retry time.Duration) {
	v.unexpected(registry.UnexpectedDetach)
	v.driver.Retry.Initial, v.driver.Retry.Max = retry, max(retry, time.Minute)
	v.dangling()
	v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
	v.start()
	v.pass(2 * time.Minute)
	failed := v.unpublishes()
	change := func(action registry.UnexpectedAction) {
		v.driver.Drift.Unexpected = action
		v.updates <- registry.Snapshot{v.driver.Name: v.driver}
	}
	change(registry.UnexpectedReport)
	v.pass(10 * time.Minute)
	if shown := v.dangled(); v.unpublishes() != failed || failed == 0 || len(shown) != 1 || !shown[0].ReportOnly {
		v.t.Errorf("%d unpublishes after the change, shown %+v", v.unpublishes()-failed, shown)
	}
	v.turn(fakecsi.Knobs{ClearFaults: true})
	change(registry.UnexpectedDetach)
	v.pass(2 * time.Minute)
	if len(v.backend.Books().Attached) > 0 || len(v.dangled()) > 0 {
		v.t.Error("not detached after the change back")
	}
}

func TestDanglingVolumeIsNotDetachedWhileTheDriverIsOnlyObserved(t *testing.T) {
	for _, mode := range []registry.Mode{registry.ModeObserve, registry.ModePaused} {
		inVirtualTime(t, func(v *virtual) {
			v.unexpected(registry.UnexpectedDetach)
			v.driver.Mode = mode
			v.dangling()
			v.start()
			v.pass(10 * time.Minute)
			if v.unpublishes() > 0 {
				t.Errorf("detached in mode %s", mode)
			}
		})
	}
}

func TestReportedVolumeWithholdsNoFinalizerAndDelaysNoAttach(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedReport)
		v.dangling()
		v.start()
		v.pass(2 * time.Minute)
		pv, err := v.kube.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pv.Finalizers = []string{attach.Finalizer(virtualDriver)}
		if _, err := v.kube.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.delete(testbed.PersistentVolume{Name: "v"})
		v.pass(5 * time.Second)
		if v.hasVolume("v") {
			t.Error("the PersistentVolume is withheld")
		}
	})
}
