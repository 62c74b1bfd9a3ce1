package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// dangling has volume v on node n, where no VolumeAttachment asks for it, and says what the hub does about that.
func (v *virtual) dangling(action registry.UnexpectedAction) {
	v.t.Helper()
	v.driver.Drift.Unexpected = action
	v.withNode("v")
	v.register("m", "id-m")
	v.attachByHand("v", "id-n")
}

func TestDanglingVolumeIsReportedOnceAndLeftAlone(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.dangling(registry.UnexpectedReport)
		v.start()
		v.pass(time.Hour)
		v.wantUnpublishes("it is reported", 0, 1)
		if d := v.dangled()[0]; !d.FromList || !d.ReportOnly || d.Node != "n" || d.NodeID != "id-n" || d.PersistentVolume != "v" || d.VolumeHandle != "v" {
			t.Errorf("shown: %+v", d)
		}
		events := v.eventsWith("DriftDetected")
		if len(events) != 1 || !strings.Contains(events[0], `volume "v" on node "n" (node ID "id-n") without a VolumeAttachment; not detaching it there because drift.unexpected is report`) {
			t.Errorf("Events: %q", events)
		}
		if listings := v.ended(fakecsi.ListVolumes); listings > 65 {
			t.Errorf("%d listings in an hour: what is reported already needs no confirmation", listings)
		}
		v.lose("v")
		v.pass(2 * time.Minute)
		v.wantDangling(0)
		v.attachByHand("v", "id-n")
		v.pass(5 * time.Minute)
		if got := v.metric("attach_hub_drift_total"); got != 2 || len(v.eventsWith("DriftDetected")) != 1 {
			t.Errorf("counted %v times after it came back", got)
		}
		// It withholds no finalizer either.
		v.updateVolume("v", func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{attach.Finalizer(virtualDriver)} })
		v.delete(testbed.PersistentVolume{Name: "v"})
		v.pass(5 * time.Second)
		if v.hasVolume("v") {
			t.Error("the PersistentVolume is withheld")
		}
	})
}

func TestDanglingVolumeIsDetachedAfterTwoListings(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.dangling(registry.UnexpectedDetach)
		v.setKnobs(failing(unpublish, codes.Internal))
		v.start()
		for began := time.Now(); v.begun(unpublish) == 0 && time.Since(began) < 5*time.Minute; {
			v.pass(time.Second)
		}
		if got := v.ended(fakecsi.ListVolumes); got != 2 {
			t.Errorf("detached after %d listings, want 2", got)
		}
		v.wantDangling(1)
		if d := v.dangled()[0]; !d.FromList || d.ReportOnly || d.Tries == 0 || d.LastError == "" {
			t.Errorf("shown while the detach fails: %+v", d)
		}
		v.setKnobs(healed)
		v.pass(2 * time.Minute)
		tries := v.begun(unpublish)
		v.pass(time.Hour)
		v.wantUnpublishes("after the detach", tries, 0)
		v.wantNothingAttached()
		events := v.eventsWith("")
		if !slices.ContainsFunc(events, func(e string) bool {
			return strings.Contains(e, "DriftDetected") && strings.HasSuffix(e, "; detaching it there")
		}) || !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "DetachFailed") }) || v.metric("attach_hub_drift_total") != 1 {
			t.Errorf("Events: %q, counted %v times", events, v.metric("attach_hub_drift_total"))
		}
	})
}

// Each case is one reason to leave a volume alone: without it, the volume is detached.
func TestVolumeThatMayNotBeTheHubsToDetachIsLeftAlone(t *testing.T) {
	wrapped := func(node string) func(*virtual) {
		return func(v *virtual) {
			va := v.attachment("v", node)
			va.Driver = "wrapper.example.com"
			object := va.Build()
			object.Status.Attached = true
			v.write(object)
		}
	}
	type row struct {
		make func(v *virtual)
		left bool
	}
	eachInVirtualTime(t, map[string]row{
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
		"attachRequired is false":            {func(v *virtual) { v.create(testbed.CSIDriver{Name: virtualDriver, NoAttach: true}) }, true},
		"attached, as noted":                 {func(v *virtual) { v.write(bySidecar(v.attachment("v", "n"), "id-n")) }, true},
		"asked for by an unknown volume":     {func(v *virtual) { v.write(bySidecar(v.attachment("gone", "n"), "id-n")) }, true},
		"another attacher's":                 {wrapped("n"), true},
		"another attacher's on another node": {wrapped("m"), false},
		"the driver is observed":             {func(v *virtual) { v.driver.Mode = registry.ModeObserve }, true},
		"the driver is paused":               {func(v *virtual) { v.driver.Mode = registry.ModePaused }, true},
		"missing where it is attached": {func(v *virtual) {
			v.driver.Drift.Action = registry.DriftReport
			v.write(bySidecar(v.attachment("v", "n"), "id-o"))
			v.register("n", "id-o")
			v.register("o", "id-n")
		}, true},
		// Volume a had handle v when csi-attacher attached it.
		"may be that of a recreated PersistentVolume": {func(v *virtual) {
			v.driver.Drift.Action = registry.DriftReport
			v.create(testbed.PersistentVolume{Name: "a", Driver: virtualDriver, Handle: "w"})
			v.write(bySidecar(v.attachment("a", "n"), "id-n"))
		}, true},
	}, func(v *virtual, c row) {
		v.dangling(registry.UnexpectedDetach)
		c.make(v)
		v.start()
		v.pass(5 * time.Minute)
		v.wantUnpublishes("in five minutes", map[bool]int{false: 1}[c.left], 0)
		if n := v.metric("attach_hub_drift_total", "unexpected"); (n > 0) == c.left {
			v.t.Errorf("counted %v times", n)
		}
	})
}

// The answer to a listing is made, and held back until the volume is detached.
func TestVolumeThatWasDetachedDuringTheListingIsNotDetachedAgain(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Unexpected = registry.UnexpectedDetach
		v.start()
		va := v.attached()
		v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ListVolumes, AfterEffect: true}}})
		v.pass(50 * time.Second * 3 / 2)
		if v.backend.Books().Methods[fakecsi.ListVolumes].InFlight.Now != 1 {
			t.Fatal("no listing is in flight")
		}
		v.delete(va)
		v.pass(time.Second)
		v.setKnobs(healed)
		v.pass(5 * time.Minute)
		v.wantUnpublishes("in the end", 1, 0)
		if n := v.metric("attach_hub_drift_total"); n > 0 {
			t.Errorf("counted %v times", n)
		}
	})
}

// A detach that fails is tried for as long as it may be the hub's to make.
func TestReasonToLeaveAVolumeAloneEndsItsDetach(t *testing.T) {
	type row struct {
		change   func(v *virtual)
		dangling int
	}
	eachInVirtualTime(t, map[string]row{
		"VolumeAttachment":        {func(v *virtual) { v.attach("v") }, 0},
		"second PersistentVolume": {func(v *virtual) { v.create(testbed.PersistentVolume{Name: "o", Driver: virtualDriver, Handle: "v"}) }, 0},
		"PersistentVolume gone":   {func(v *virtual) { v.delete(testbed.PersistentVolume{Name: "v"}) }, 0},
		"node gone":               {func(v *virtual) { v.delete(testbed.CSINode{Node: "n"}) }, 0},
		"not listed any more":     {func(v *virtual) { v.lose("v") }, 0},
		"in use":                  {func(v *virtual) { v.inUse("n", "v") }, 1},
	}, func(v *virtual, c row) {
		v.dangling(registry.UnexpectedDetach)
		v.setKnobs(failing(unpublish, codes.Internal))
		v.start()
		v.pass(2 * time.Minute)
		c.change(v)
		v.pass(2 * time.Minute)
		tries := v.begun(unpublish)
		v.setKnobs(fakecsi.Knobs{ClearFaults: true})
		v.pass(time.Hour)
		v.wantUnpublishes("after the change", tries, c.dangling)
		if tries == 0 {
			v.t.Error("no detach has begun")
		}
	})
}

func TestChangeToReportEndsTheDetachOfWhatOnlyAListingHasShown(t *testing.T) {
	eachInVirtualTime(t, map[string]time.Duration{"before the next listing": 500 * time.Millisecond, "by the next listing": 5 * time.Hour}, func(v *virtual, retry time.Duration) {
		v.driver.Retry.Initial, v.driver.Retry.Max = retry, max(retry, time.Minute)
		v.dangling(registry.UnexpectedDetach)
		v.setKnobs(failing(unpublish, codes.Internal))
		v.start()
		v.pass(2 * time.Minute)
		tries := v.begun(unpublish)
		v.driver.Drift.Unexpected = registry.UnexpectedReport
		v.serve()
		v.pass(10 * time.Minute)
		v.wantUnpublishes("after the change", tries, 1)
		if !v.dangled()[0].ReportOnly || tries == 0 {
			v.t.Errorf("%d tries, shown %+v", tries, v.dangled())
		}
		v.setKnobs(healed)
		v.driver.Drift.Unexpected = registry.UnexpectedDetach
		v.serve()
		v.pass(2 * time.Minute)
		v.wantNothingAttached()
		v.wantDangling(0)
	})
}

// A Pod waits for ever: somebody attached its volume to another node by hand, and Kubernetes knows nothing of that. These are
// the requests that kubectl makes for diagnosis.DetachCommands.
func TestVolumeThatWasAttachedBehindTheClustersBackIsFreedByTheCommandsForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	// A try before the volume is free would be refused too. The detach ends the backoff.
	w.retry(driver, time.Hour)
	node, other := w.node("n", driver), w.node("o", driver)
	va := w.volume("v", driver, node)
	w.setKnobs(backend, fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: "v", Node: "id-o"}}})
	w.start()
	w.create(va)
	if e := w.waitAttachError(va).Status.AttachError; !strings.Contains(e.Message, "published to another node") {
		t.Errorf("%q", e.Message)
	}
	commands := diagnosis.DetachCommands(driver, other, va.PersistentVolume)
	create, _, _ := strings.Cut(commands[0], " | kubectl create")
	input, err := exec.CommandContext(w.ctx, "sh", "-c", create).Output()
	if err != nil {
		t.Fatal(err)
	}
	var freeing storagev1.VolumeAttachment
	if err := json.Unmarshal(input, &freeing); err != nil {
		t.Fatal(err)
	}
	w.write(&freeing)
	w.waitAttached(testbed.VolumeAttachment{Name: freeing.Name})
	w.delete(testbed.VolumeAttachment{Name: freeing.Name})
	w.waitAttached(va)
	if b := backend.Books(); !b.IsAttached("v", "id-n") || b.IsAttached("v", "id-o") || b.ViolationCount > 0 {
		t.Errorf("the driver has %v attached, violations %+v", b.Attached, b.Violations)
	}
}

// wantUnpublishes checks how often the driver was asked to unpublish, and how many dangling publications are shown.
func (v *virtual) wantUnpublishes(when string, n, dangling int) {
	v.t.Helper()
	if got := v.begun(unpublish); got != n {
		v.t.Errorf("%s: %d unpublishes, want %d\n%s", when, got, n, v.log.String())
	}
	v.wantDangling(dangling)
}

func TestVolumeThatIsReportedIsNotShownOnceAVolumeAttachmentNamesIt(t *testing.T) {
	eachInVirtualTime(t, map[string]string{"of the driver": virtualDriver, "of another attacher, which wraps the driver, say": "wrapper.example.com"}, func(v *virtual, attacher string) {
		v.dangling(registry.UnexpectedReport)
		v.start()
		v.pass(2 * time.Minute)
		v.wantDangling(1)
		va := v.attachment("v", "n")
		va.Driver = attacher
		v.create(va)
		v.pass(time.Second)
		v.wantDangling(0)
	})
}

// A restore of etcd, or somebody, has removed the VolumeAttachments of Pods that run.
func TestVolumeInUseOnItsNodeIsReportedAndNotDetached(t *testing.T) {
	type row struct {
		use, free func(v *virtual)
		want      string
	}
	eachInVirtualTime(t, map[string]row{
		"in use": {
			func(v *virtual) {
				v.nodeStatus("n", func(s *corev1.NodeStatus) {
					s.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/other.example.com^w", usedAs("v")}
				})
			}, func(v *virtual) { v.inUse("n", "w") }, "it is in use on node n"},
		"Node gone": {
			func(v *virtual) { v.delete(testbed.Node{Name: "n"}) },
			func(v *virtual) { v.create(testbed.Node{Name: "n"}) }, "whether it is in use on node n is not known: the Node object is gone"},
	}, func(v *virtual, c row) {
		v.dangling(registry.UnexpectedDetach)
		c.use(v)
		v.start()
		v.pass(time.Hour)
		v.wantUnpublishes("while it is", 0, 1)
		if d := v.dangled()[0]; !d.ReportOnly || d.LastError != c.want {
			v.t.Errorf("shown: %+v, want %q", d, c.want)
		}
		events := v.eventsWith("DriftDetected")
		if got := v.metric("attach_hub_drift_total"); got != 1 || len(events) != 1 || !strings.HasSuffix(events[0], "; not detaching it there because "+c.want) {
			v.t.Errorf("counted %v times, Events: %q", got, events)
		}
		if listings := v.ended(fakecsi.ListVolumes); listings > 65 {
			v.t.Errorf("%d listings in an hour", listings)
		}
		c.free(v)
		v.pass(3 * time.Minute)
		v.wantUnpublishes("when it is not in use any more", 1, 0)
	})
}

// Each listing read the Node once for each volume that is in use there.
func TestNodeIsReadOnceForAllDanglingVolumesOfAListing(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Unexpected = registry.UnexpectedDetach
		v.register("n", "id-n")
		var used []string
		for i := range 50 {
			name := fmt.Sprintf("v%02d", i)
			v.volume(name)
			v.attachByHand(name, "id-n")
			used = append(used, name)
		}
		v.inUse("n", used...)
		v.start()
		v.pass(10 * time.Minute)
		before, listed := v.api.Count("get", "nodes"), v.ended(fakecsi.ListVolumes)
		v.pass(time.Hour)
		if reads, listings := v.api.Count("get", "nodes")-before, v.ended(fakecsi.ListVolumes)-listed; reads == 0 || reads > listings {
			t.Errorf("%d reads of one Node for %d listings, want one each", reads, listings)
		}
	})
}

// elsewhere returns what is said of where else the driver has the volume of a VolumeAttachment.
func (v *virtual) elsewhere(name string) []diagnosis.Diagnosis {
	d := v.status()
	found := status.DiagnoseWork(status.DiagnosisInput{Attachment: v.seen(name), Driver: &d, Now: time.Now()})
	return slices.DeleteFunc(found, func(d diagnosis.Diagnosis) bool { return d.Verdict != diagnosis.Dangling })
}

// A volume that was attached by hand to another node, or left there by a process that was killed, blocked its attach until
// somebody detached it by hand.
func TestAttachThatADanglingVolumeBlocksHealsAfterTwoListings(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval, v.driver.Timeout = time.Hour, 24*time.Hour
		v.dangling(registry.UnexpectedDetach)
		v.start()
		v.create(v.attachment("v", "m"))
		v.pass(time.Second)
		v.wantAttachError("v-m", "is published to another node: id-n")
		v.wantUnpublishes("before a listing", 0, 0)
		v.setKnobs(hanging(unpublish))
		v.pass(90 * time.Minute)
		elsewhere := v.elsewhere("v-m")
		if seen := v.seen("v-m"); seen.Waiting.Kind != status.WaitForDanglingDetach || len(elsewhere) != 1 || !strings.HasPrefix(elsewhere[0].Actions[0], "Wait: the hub detaches it there") || !strings.Contains(elsewhere[0].Fact, "(node n)") {
			t.Errorf("waits for %+v, elsewhere %+v", seen.Waiting, elsewhere)
		}
		v.setKnobs(healed)
		v.pass(time.Second)
		v.wantAttached("v-m")
		v.wantUnpublishes("in the end", 1, 0)
		if seen := v.elsewhere("v-m"); len(seen) > 0 {
			t.Errorf("shown when it is attached: %+v", seen)
		}
	})
}

func TestViewOfARefusedAttachNamesTheNodeThatHasTheVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.dangling(registry.UnexpectedReport)
		v.start()
		v.create(v.attachment("v", "m"))
		v.pass(5 * time.Minute)
		seen := v.elsewhere("v-m")
		if len(seen) != 1 || !strings.Contains(seen[0].Fact, "at node ID id-n (node n)") || len(seen[0].Commands) == 0 || seen[0].Since.IsZero() {
			t.Errorf("elsewhere %+v", seen)
		}
		v.wantUnpublishes("it is only reported", 0, 1)
		v.setKnobs(failing(publish, codes.Internal))
		v.pass(2 * time.Minute)
		if seen := v.elsewhere("v-m"); len(seen) > 0 {
			t.Errorf("elsewhere after another error: %+v", seen)
		}
	})
}

// A Pod on n has the volume mounted, and its VolumeAttachment was lost.
func TestVolumeInUseOnItsNodeIsNotFreedForARefusedAttach(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.dangling(registry.UnexpectedDetach)
		v.inUse("n", "v")
		v.start()
		v.create(v.attachment("v", "m"))
		v.pass(5 * time.Minute)
		if seen := v.elsewhere("v-m"); len(seen) != 1 || !strings.Contains(seen[0].Detail, "the hub does not detach it because it is in use on node n") {
			t.Errorf("elsewhere %+v", seen)
		}
		v.wantUnpublishes("it is in use", 0, 1)
		v.inUse("n")
		v.pass(10 * time.Minute)
		v.wantAttached("v-m")
		v.wantUnpublishes("it is not in use any more", 1, 0)
	})
}

// The driver reports volume v on a node whatever it has been asked to do.
func TestDriverThatRefusesAnAttachWhateverIsDetachedIsNotCalledWithoutEnd(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.dangling(registry.UnexpectedDetach)
		v.setKnobs(failing(publish, codes.FailedPrecondition))
		v.connect = func(_ context.Context, _ int, s *backendSession) error {
			s.list = func() csiclient.Published { return csiclient.Published{"v": {IDs: []string{"id-n"}}} }
			return nil
		}
		v.start()
		v.create(v.attachment("v", "m"))
		v.pass(10 * time.Minute)
		if p, u := v.begun(publish), v.begun(unpublish); p > 100 || u > 100 || u == 0 {
			t.Errorf("%d publishes and %d unpublishes in ten minutes", p, u)
		}
	})
}
