package hub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// attaches returns how many attaches the metrics count, and how many of these took a minute at most.
func (v *virtual) attaches() (all, inTime uint64) {
	v.t.Helper()
	gatherer, err := v.options.Metrics.Gatherer(virtualSource{v.hub})
	if err != nil {
		v.t.Fatal(err)
	}
	families, err := gatherer.Gather()
	if err != nil {
		v.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "attach_hub_attach_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			for _, b := range h.GetBucket() {
				if b.GetUpperBound() == 60 {
					return h.GetSampleCount(), b.GetCumulativeCount()
				}
			}
		}
	}
	v.t.Fatal("there is no metric attach_hub_attach_seconds with a bucket of 60")
	return 0, 0
}

func TestEachAttachIsCountedOnceForTheObjective(t *testing.T) {
	fail := fakecsi.Fault{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}
	for name, tt := range map[string]struct {
		make              func(*virtual)
		wait              time.Duration
		all, inTime       uint64 // after wait
		allThen, timeThen uint64 // after the driver works again
	}{
		"fast":                     {func(*virtual) {}, time.Second, 1, 1, 1, 1},
		"slower than a minute":     {func(v *virtual) { v.turn(hangPublish) }, 100 * time.Second, 0, 0, 1, 0},
		"fails each try":           {func(v *virtual) { v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{fail}}) }, 20 * time.Minute, 1, 0, 1, 0},
		"fails for half a minute":  {func(v *virtual) { v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{fail}}) }, 20 * time.Second, 0, 0, 1, 1},
		"call without an answer":   {func(v *virtual) { v.driver.Timeout = time.Hour; v.turn(hangPublish) }, 20 * time.Minute, 1, 0, 1, 0},
		"waits for 4 min in vain":  {func(v *virtual) { v.turn(hangPublish) }, 4 * time.Minute, 0, 0, 1, 0},
		"driver away":              {func(v *virtual) { v.away(20*time.Minute + time.Second) }, 20 * time.Minute, 1, 0, 1, 0},
		"driver away for a minute": {func(v *virtual) { v.away(90 * time.Second) }, 80 * time.Second, 0, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(v *virtual) {
				v.withNode("a")
				tt.make(v)
				v.start()
				va := v.attachment("a", "n")
				v.create(va)
				v.pass(tt.wait)
				if all, inTime := v.attaches(); all != tt.all || inTime != tt.inTime {
					t.Errorf("counted %d attaches, %d in time; want %d and %d", all, inTime, tt.all, tt.inTime)
				}
				v.turn(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true})
				v.pass(20 * time.Minute)
				if !v.get(va.Name).Status.Attached {
					t.Fatal("it is not attached in the end")
				}
				if all, inTime := v.attaches(); all != tt.allThen || inTime != tt.timeThen {
					t.Errorf("in the end counted %d attaches, %d in time; want %d and %d", all, inTime, tt.allThen, tt.timeThen)
				}
			})
		})
	}
}

// away refuses connections to the driver for a time.
func (v *virtual) away(d time.Duration) {
	back := time.Now().Add(d)
	connect := v.options.Connect
	v.options.Connect = func(ctx context.Context, r registry.Driver) (hub.Session, error) {
		if time.Now().Before(back) {
			return nil, errors.New("refused")
		}
		return connect(ctx, r)
	}
}

// Another client's wish that ended before it was due is no miss.
func TestAttachThatIsNoLongerAskedForIsNotCounted(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("a")
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}}})
		v.start()
		va := v.attachment("a", "n")
		v.create(va)
		v.pass(time.Minute)
		v.delete(va)
		v.pass(20 * time.Minute)
		if all, _ := v.attaches(); all != 0 || v.get(va.Name) != nil {
			t.Errorf("counted %d attaches, want none; it is deleted: %v", all, v.get(va.Name) == nil)
		}
	})
}

// An old VolumeAttachment whose volume is attached again would count as a late attach.
func TestRepairIsNotCountedAsAnAttachThatWasAskedFor(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval, v.driver.Drift.Action = time.Minute, registry.DriftReattach
		v.withNode("a")
		v.start()
		v.create(v.attachment("a", "n"))
		v.pass(20 * time.Minute)
		v.turn(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "a"}}})
		v.pass(20 * time.Minute)
		if n := v.calls(fakecsi.ControllerPublishVolume, "a", "id-n"); n != 2 {
			t.Fatalf("%d calls to attach it, want the repair too", n)
		}
		if all, inTime := v.attaches(); all != 1 || inTime != 1 {
			t.Errorf("counted %d attaches, %d in time; want one in time", all, inTime)
		}
	})
}

// Without this, VolumeAttachments that are stuck for days would fire the alerts after each rollout.
func TestTakeoverCountsOnlyWhatBecameLateAfterTheLastHolder(t *testing.T) {
	for name, tt := range map[string]struct {
		start, release time.Duration // since the creation of the VolumeAttachment
		want           uint64
	}{
		"late while another replica worked": {start: 0, release: 20 * time.Minute, want: 0},
		"late while nobody worked":          {start: 20 * time.Minute, release: 2 * time.Minute, want: 1},
		"late after the takeover":           {start: 0, release: 2 * time.Minute, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(v *virtual) {
				v.leased()
				release := v.holdLease("another")
				v.withNode("a")
				v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}}})
				va := v.attachment("a", "n")
				v.create(va)
				if tt.start == 0 {
					v.start()
				}
				v.pass(tt.release)
				release()
				if tt.start > 0 {
					v.pass(tt.start - tt.release)
					v.start()
				}
				v.pass(10 * time.Minute)
				if n := v.calls(fakecsi.ControllerPublishVolume, "a", "id-n"); n == 0 {
					t.Fatal("the driver was not taken over")
				}
				if all, inTime := v.attaches(); all != tt.want || inTime != 0 {
					t.Errorf("counted %d attaches, %d in time; want %d and none", all, inTime, tt.want)
				}
				v.turn(fakecsi.Knobs{ClearFaults: true})
				v.pass(20 * time.Minute)
				if all, _ := v.attaches(); all != tt.want || !v.get(va.Name).Status.Attached {
					t.Errorf("counted %d attaches in the end, want %d; attached: %v", all, tt.want, v.get(va.Name).Status.Attached)
				}
			})
		})
	}
}

// undo has another client write that a volume is not attached, and notes its write as the API server does.
func (v *virtual) undo(name string) {
	v.t.Helper()
	object := v.get(name)
	object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "storage.k8s.io/v1",
		Subresource: "status", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:attached":{}}}`)}}
	object, err := v.kube.StorageV1().VolumeAttachments().Update(v.t.Context(), object, metav1.UpdateOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	object.Status.Attached = false
	if _, err := v.kube.StorageV1().VolumeAttachments().UpdateStatus(v.t.Context(), object, metav1.UpdateOptions{}); err != nil {
		v.t.Fatal(err)
	}
}

func TestAttachThatAnotherClientHasUndoneIsNotCountedAgain(t *testing.T) {
	for name, counted := range map[string]uint64{"by the same process": 1, "after a restart": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(v *virtual) {
				v.withNode("a")
				stop := v.start()
				va := v.attachment("a", "n")
				v.create(va)
				v.pass(20 * time.Minute)
				if counted == 0 { // the metrics of a driver end with the hub
					stop()
					v.start()
					v.pass(time.Minute)
				}
				v.turn(hangPublish)
				v.undo(va.Name)
				v.pass(20 * time.Minute)
				v.turn(fakecsi.Knobs{ReleaseAll: true})
				v.pass(20 * time.Minute)
				if n := v.calls(fakecsi.ControllerPublishVolume, "a", "id-n"); n < 2 || !v.get(va.Name).Status.Attached {
					t.Fatalf("%d calls, attached: %v", n, v.get(va.Name).Status.Attached)
				}
				if all, inTime := v.attaches(); all != counted || inTime != counted {
					t.Errorf("counted %d attaches, %d in time; want %d in time", all, inTime, counted)
				}
				if steps := told(v.steps(va.Name)); len(steps) == 0 || strings.HasPrefix(steps[0], "created") {
					t.Errorf("steps %q, want none of the creation", steps)
				}
			})
		})
	}
}
