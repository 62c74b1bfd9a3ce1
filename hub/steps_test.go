package hub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// steps are the steps that the hub shows of a VolumeAttachment.
func (v *virtual) steps(name string) []status.Step {
	v.t.Helper()
	all := v.hub.Attachments(status.AttachmentFilter{Name: name})
	if len(all) != 1 {
		v.t.Fatalf("%d VolumeAttachments have the name %s", len(all), name)
	}
	for i, s := range all[0].Steps {
		if s.Time.IsZero() || !s.Until.IsZero() && s.Until.Before(s.Time) || i > 0 && s.Time.Before(all[0].Steps[i-1].Time) {
			v.t.Errorf("step %d is out of order: %+v", i, all[0].Steps)
		}
	}
	return all[0].Steps
}

// told is each step in a line: its length, where it has one, and its error.
func told(steps []status.Step) []string {
	var lines []string
	for _, s := range steps {
		line := strings.TrimSpace(fmt.Sprint(s.Kind, " ", s.What))
		if s.Kind == status.StepWaited && !s.Until.IsZero() {
			line += fmt.Sprint(" ", s.Until.Sub(s.Time).Round(100*time.Millisecond))
		}
		if s.Kind == status.StepWaited && s.Until.IsZero() {
			line += " ..."
		}
		if s.Error != "" {
			line += ": " + s.Error
		}
		lines = append(lines, line)
	}
	return lines
}

func (v *virtual) checkSteps(name string, want ...string) {
	v.t.Helper()
	if got := told(v.steps(name)); !slices.Equal(got, want) {
		v.t.Errorf("steps of %s:\ngot  %q\nwant %q", name, got, want)
	}
}

func TestStepsOfAnAttachAreKeptAfterIt(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Message: "no", Count: 1}}})
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(100 * time.Millisecond)
		failed := []string{"created", "seen", "wrote finalizers and notes", "called ControllerPublishVolume: rpc error: code = Internal desc = no", "wrote the error into the status"}
		v.checkSteps(va.Name, append(failed[:5:5], "waited the next try ...")...)
		v.pass(time.Minute)
		all := v.steps(va.Name)
		if len(all) != 9 {
			t.Fatalf("steps %q", told(all))
		}
		if got := told(append(all[:5:5], all[6:]...)); !slices.Equal(got, append(failed, "called ControllerPublishVolume", "wrote the status", "done")) {
			t.Errorf("steps %q", got)
		}
		if w := all[5]; w.What != "the next try" || w.Until.Sub(w.Time) < 300*time.Millisecond {
			t.Errorf("wait %+v", w)
		}
		if all := v.hub.Attachments(status.AttachmentFilter{}); len(all) != 1 || all[0].Steps != nil {
			t.Errorf("the answer for all VolumeAttachments has steps: %+v", all)
		}
		v.turn(fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{fakecsi.ControllerUnpublishVolume: {Base: time.Minute}}})
		v.delete(va)
		v.pass(time.Second)
		v.checkSteps(va.Name, "created", "seen", "called ControllerUnpublishVolume")
	})
}

func TestStepsNameWhatAnAttachWaitsFor(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Settings.Workers = 2
		v.register("n", "id-n")
		v.register("m", "id-m")
		v.volume("v")
		v.volume("other")
		v.start()
		v.pass(time.Second)
		first, second := v.attachment("v", "n"), v.attachment("v", "m")
		v.create(first)
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{
			fakecsi.ControllerPublishVolume: {Base: 20 * time.Second}, fakecsi.ControllerUnpublishVolume: {Base: 10 * time.Second}}})
		v.delete(first)
		v.pass(0)
		v.create(second)
		v.pass(5 * time.Second)
		v.checkSteps(second.Name, "created", "seen", "waited the detach from node n ...")
		third := v.attachment("other", "n")
		v.create(third) // takes the one worker for attaches
		v.pass(4 * time.Second)
		v.checkSteps(second.Name, "created", "seen", "waited the detach from node n ...")
		v.pass(time.Minute)
		v.checkSteps(second.Name, "created", "seen", "waited the detach from node n 10s", "waited a worker of the driver 15s",
			"wrote finalizers and notes", "called ControllerPublishVolume", "wrote the status", "done")
	})
}

func TestStepsOfAProcessThatDoesNotLeadNameTheLease(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.register("n", "id-n")
		v.volume("v")
		release := v.holdLease("another")
		va := v.attachment("v", "n")
		v.start()
		v.create(va)
		v.pass(time.Minute)
		v.checkSteps(va.Name, "created", "waited the lease of the driver ...")
		release()
		v.pass(time.Minute)
		steps := told(v.steps(va.Name))
		if len(steps) < 3 || !strings.HasPrefix(steps[1], "waited the lease of the driver 1m") || steps[len(steps)-1] != "done" {
			t.Errorf("steps %q", steps)
		}
	})
}

func TestStepsNameTheConnectionOfTheDriver(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		away, connect := false, v.options.Connect
		v.options.Connect = func(ctx context.Context, d registry.Driver) (hub.Session, error) {
			if away {
				return nil, errors.New("refused")
			}
			return connect(ctx, d)
		}
		v.start()
		v.pass(time.Second)
		away = true
		v.turn(fakecsi.Knobs{NotReady: new(true)})
		v.pass(5 * time.Minute)
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(time.Minute)
		v.checkSteps(va.Name, "created", "seen", "waited the driver's connection ...")
		away = false
		v.turn(fakecsi.Knobs{NotReady: new(false)})
		v.pass(time.Minute)
		steps := told(v.steps(va.Name))
		if len(steps) < 4 || !strings.HasPrefix(steps[2], "waited the driver's connection 1m") || steps[len(steps)-1] != "done" {
			t.Errorf("steps %q", steps)
		}
	})
}

func TestStepsOfAnAttachThatFailsForHoursAreBounded(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Message: strings.Repeat("no ", 1000)}}})
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(6 * time.Hour)
		steps := v.steps(va.Name)
		if len(steps) > 25 || steps[0].Kind != status.StepCreated || !slices.ContainsFunc(steps, func(s status.Step) bool { return s.Kind == status.StepOmitted }) {
			t.Errorf("steps %q", told(steps))
		}
		for _, s := range steps {
			if len(s.Error) > 256 {
				t.Errorf("the error of a step has %d bytes", len(s.Error))
			}
		}
	})
}

func TestStepsOfAnAttachWhoseVolumeIsMissingHaveItsError(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.start()
		va := testbed.VolumeAttachment{Name: "v-n", Driver: virtualDriver, Node: "n", PersistentVolume: "v"}
		v.create(va)
		v.pass(100 * time.Millisecond)
		if steps := v.steps(va.Name); len(steps) < 3 || steps[2].Kind != status.StepRead || !strings.Contains(steps[2].Error, `"v" not found`) {
			t.Errorf("steps %q", told(steps))
		}
	})
}
