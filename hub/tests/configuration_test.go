package tests

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestChangedEndpointReconnectsThatDriverAlone(t *testing.T) {
	w := newWorld(t)
	moved, movedBackend := w.driver("moved", fakecsi.Options{})
	steady, steadyBackend := w.driver("steady", fakecsi.Options{})
	node := w.node("n", moved, steady)
	before, after := w.volume("before", moved, node), w.volume("after", moved, node)
	w.start()
	w.create(before)
	w.waitAttached(before)
	server := w.server(movedBackend, "elsewhere")
	w.restart(server)
	changed := maps.Clone(w.drivers)
	d := changed[moved]
	d.Endpoint = registry.Endpoint(server.Endpoint())
	changed[moved] = d
	w.updates <- changed
	w.waitBooks(movedBackend, "connected to again", func(b fakecsi.Books) bool { return b.Methods[fakecsi.GetPluginInfo].Ended >= 2 })
	w.servers[moved].Crash() // whoever still used the old endpoint would notice
	w.create(after)
	w.waitAttached(after)
	if got := connections(steadyBackend); got != 1 {
		t.Errorf("connected to the other driver %d times, want once", got)
	}
}

// That Connect refuses such a driver is tested in hub/csiclient.
func TestDriverUnderAnotherNameGetsNoCallAndItsStateSaysSo(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		var another atomic.Bool
		v.connect = func(context.Context, int, *backendSession) error {
			if another.Load() {
				return &csiclient.NameError{Want: virtualDriver, Got: "another.example.com"}
			}
			return nil
		}
		v.start()
		before := v.attached()
		another.Store(true)
		v.hangUp()
		v.withNode("after")
		v.attach("after")
		v.delete(before)
		v.pass(time.Minute)
		v.wantState("under another name", status.StateNameMismatch, "another.example.com")
		if v.begun(publish) != 1 || v.begun(unpublish) > 0 || v.connections() < 10 {
			t.Errorf("%d publishes, %d unpublishes, %d connections, want no call of the other driver, and tries to connect", v.begun(publish), v.begun(unpublish), v.connections())
		}
		another.Store(false)
		v.pass(time.Minute)
		v.wantAttached("after-n")
		v.wantGone(before.Name)
	})
}

func TestSettingsChangeWithoutAReconnectOrALostQueue(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Workers = 2
		v.setKnobs(hanging(publish))
		v.register("n", "id-n")
		v.start()
		vas := v.many("v", 8)
		for _, workers := range []int{2, 8} {
			v.driver.Workers, v.driver.Source = workers, "drivers.yaml:99"
			v.serve()
			v.pass(time.Second)
			if n := v.backend.Books().AttachInFlight.Now; n != workers/2 {
				t.Errorf("%d attaches in flight, want half of %d workers", n, workers)
			}
		}
		v.setKnobs(healed)
		v.pass(time.Minute)
		for _, va := range vas {
			v.wantAttached(va.Name)
		}
		v.wantPublishes("no call was lost", len(vas))
		if v.connections() != 1 {
			t.Errorf("connected to the driver %d times, want once", v.connections())
		}
	})
}

func TestRemovedDriverDrainsAndLeavesItsAttachmentsAsTheyAre(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		staying := v.attached()
		version := v.get(staying.Name).ResourceVersion
		v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "hanging"}}})
		v.withNode("hanging", "late")
		v.attach("hanging")
		v.updates <- registry.Snapshot{}
		v.pass(time.Second)
		v.wantState("its call hangs", status.StateDraining, "")
		v.attach("late") // nobody's
		v.serve()
		v.setKnobs(healed)
		v.pass(time.Minute)
		// The successor begins when the predecessor has ended, and takes what was left.
		v.wantAttached("late-n", "hanging-n")
		v.wantPublishes("the one in flight was let end", 3)
		if got := v.get(staying.Name); got.ResourceVersion != version {
			t.Errorf("the attached VolumeAttachment was written: %+v", got)
		}
	})
}

// windDown has the driver served only until nothing is left.
func (v *virtual) windDown(is bool) {
	v.driver.WindDown = is
	v.serve()
	v.pass(0)
}

// wantNotServed checks that the hub has ended its work for the driver.
func (v *virtual) wantNotServed(connections int) {
	v.t.Helper()
	if shown := v.hub.Drivers(); len(shown) > 0 {
		v.t.Errorf("shown: %+v", shown)
	}
	if n, all := v.dialled(); n != connections || n > 0 && all[n-1].ended.Err() == nil {
		v.t.Errorf("%d connections, want %d, and the last one closed", n, connections)
	}
}

func TestWindDownDoesNotInterruptADriverThatIsServed(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		first := v.attached()
		v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "slow"}}})
		v.withNode("slow", "late")
		v.attach("slow")
		for i := range 7 {
			v.windDown(i%2 == 0)
		}
		v.attach("late") // its driver is served for what is left, and nothing says attachRequired: false
		v.wantAttached("late-n")
		v.setKnobs(healed)
		v.pass(time.Second)
		v.wantAttached("slow-n")
		v.wantPublishes("no call was lost", 3)
		v.delete(first, v.attachment("slow", "n"), v.attachment("late", "n"))
		v.pass(time.Minute)
		v.wantNothingAttached()
		v.wantNotServed(1)
	})
}

func TestDriverThatWindsDownComesBackForAVolumeThatIsDeletedLater(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.volume("v")
		v.updateVolume("v", func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{attach.Finalizer(virtualDriver)} })
		v.driver.WindDown = true
		v.start()
		v.pass(time.Hour)
		v.wantNotServed(0) // there is nothing to undo
		v.delete(testbed.PersistentVolume{Name: "v"})
		v.pass(time.Minute)
		if v.hasVolume("v") {
			t.Error("the PersistentVolume is still there")
		}
		v.wantNotServed(1)
	})
}

// Nothing in the API tells of such a volume any more.
func TestDriverThatWindsDownIsServedUntilAVolumeOfAVanishedAttachmentIsDetached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.leaveAttached(codes.Internal)
		v.windDown(true)
		v.pass(time.Hour)
		v.wantDangling(1)
		v.setKnobs(healed)
		v.pass(2 * time.Minute)
		v.wantNothingAttached()
		v.wantNotServed(1)
	})
}

func TestAttachmentsThatNeedNoDriverAreNotShownAsUnserved(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		foreign := v.attachment("foreign", "n")
		foreign.Driver = "foreign.example.com"
		v.create(foreign)
		v.attachRequired(false)
		v.windDown(true)
		v.pass(time.Minute)
		v.wantNotServed(1)
		unserved, since := v.hub.Unserved()
		if !maps.Equal(unserved, map[string]int{foreign.Driver: 1}) || len(since) != 1 || !since[foreign.Driver].Equal(v.get(foreign.Name).CreationTimestamp.Time) {
			t.Errorf("unserved are %v, waiting %v, want 1 of %s since its creation", unserved, since, foreign.Driver)
		}
		for name, want := range map[string]status.AttachmentState{va.Name: status.Idle, foreign.Name: status.Unserved} {
			if a := v.seen(name); a.State != want {
				t.Errorf("%s is shown as %+v, want it %s", name, a, want)
			}
		}
	})
}
