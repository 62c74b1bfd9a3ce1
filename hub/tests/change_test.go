package tests

import (
	"path/filepath"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// snapshot returns a copy of what is served, with changes.
func (w *world) snapshot(change func(registry.Snapshot)) registry.Snapshot {
	s := registry.Snapshot{}
	for name, d := range w.drivers {
		s[name] = d
	}
	change(s)
	return s
}

func connections(b *fakecsi.Backend) int { return b.Books().Methods[fakecsi.GetPluginInfo].Ended }

func TestSettingsChangeWithoutAReconnectOrALostQueue(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.Workers = 2 })
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	node := w.node("n", driver)
	var attachments []testbed.Object
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		attachments = append(attachments, w.volume(name, driver, node))
	}
	updates, _ := w.run()
	updates <- w.drivers
	w.create(attachments...)
	w.waitBooks(backend, "half of two workers", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	updates <- w.snapshot(func(s registry.Snapshot) {
		d := s[driver]
		d.Workers, d.Source = 8, "drivers.yaml:99"
		s[driver] = d
	})
	w.waitBooks(backend, "half of eight workers", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 4 })
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitAllAttached(len(attachments))
	if got := connections(backend); got != 1 {
		t.Errorf("connected to the driver %d times, want once", got)
	}
	if got := publishes(backend); got != len(attachments) {
		t.Errorf("%d publishes, want %d", got, len(attachments))
	}
}

func TestChangedEndpointReconnectsThatDriverAlone(t *testing.T) {
	w := newWorld(t)
	moved, movedBackend := w.driver("moved", fakecsi.Options{})
	steady, steadyBackend := w.driver("steady", fakecsi.Options{})
	node := w.node("n", moved, steady)
	before, after := w.volume("before", moved, node), w.volume("after", moved, node)
	updates, _ := w.run()
	updates <- w.drivers
	w.create(before)
	w.waitForOne(before.Name, "attached", isAttached)

	endpoint := "unix://" + filepath.Join(w.dir, "elsewhere")
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: movedBackend, Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Crash)
	updates <- w.snapshot(func(s registry.Snapshot) {
		d := s[moved]
		d.Endpoint = registry.Endpoint(endpoint)
		s[moved] = d
	})
	w.waitBooks(movedBackend, "connected to again", func(b fakecsi.Books) bool { return b.Methods[fakecsi.GetPluginInfo].Ended == 2 })
	w.servers[moved].Crash() // whoever still used the old endpoint would notice
	w.create(after)
	w.waitForOne(after.Name, "attached", isAttached)
	if got := connections(steadyBackend); got != 1 {
		t.Errorf("connected to the other driver %d times, want once", got)
	}
}

func TestRemovedDriverDrainsAndLeavesItsAttachmentsAsTheyAre(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	node := w.node("n", driver)
	staying, hanging, late := w.volume("staying", driver, node), w.volume("hanging", driver, node), w.volume("late", driver, node)
	updates, h := w.run()
	updates <- w.drivers
	w.create(staying)
	w.waitForOne(staying.Name, "attached", isAttached)
	version := w.get(staying.Name).ResourceVersion
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "hanging"}}})
	w.create(hanging)
	w.waitBooks(backend, "publish is called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })

	updates <- registry.Snapshot{}
	w.waitCondition(h, driver, status.StateDraining)
	w.create(late) // nobody's
	updates <- w.drivers
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	// The successor begins when the predecessor has ended, and takes what was left.
	w.waitForOne(late.Name, "attached", isAttached)
	w.waitForOne(hanging.Name, "attached", isAttached)
	if got := w.get(staying.Name); got.ResourceVersion != version {
		t.Errorf("the attached VolumeAttachment was written: %+v", got)
	}
	if got := publishes(backend); got != 3 {
		t.Errorf("%d publishes, want 3: the one in flight was let end", got)
	}
}

func TestDriverUnderAnotherNameGetsNoCallAndItsStateSaysSo(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	node := w.node("n", driver)
	before, after := w.volume("before", driver, node), w.volume("after", driver, node)
	updates, h := w.run()
	updates <- w.drivers
	w.create(before)
	w.waitForOne(before.Name, "attached", isAttached)
	w.waitCondition(h, driver, status.StateReady)
	w.servers[driver].Crash()
	w.turn(backend, fakecsi.Knobs{Name: "another.csi.example.com"})
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	w.waitCondition(h, driver, status.StateNameMismatch)
	w.create(after)
	w.delete(before)
	w.waitForOne(before.Name, "deleted", func(va *storagev1.VolumeAttachment) bool { return va.DeletionTimestamp != nil })
	w.waitBooks(backend, "asked for its name a few times more", func(b fakecsi.Books) bool { return b.Methods[fakecsi.GetPluginInfo].Ended >= 4 })
	if got := backend.Books().AttachInFlight.Max + publishes(backend); got != 2 {
		t.Errorf("the other driver was called: %+v", backend.Books().Calls)
	}
	w.servers[driver].Crash()
	w.turn(backend, fakecsi.Knobs{Name: driver})
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	w.waitForOne(after.Name, "attached", isAttached)
	w.waitFor("only the second one left", testbed.AllAttached(1))
}

func TestDriverThatBeginsToAttachIsServedSo(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{Capabilities: []fakecsi.Capability{}})
	node := w.node("n", driver)
	before, after := w.volume("before", driver, node), w.volume("after", driver, node)
	w.start()
	w.create(before)
	w.waitForOne(before.Name, "attached", isAttached)
	w.servers[driver].Crash()
	w.turn(backend, fakecsi.Knobs{Capabilities: fakecsi.DefaultCapabilities()})
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	w.waitBooks(backend, "asked what it can do", func(b fakecsi.Books) bool {
		return b.Methods[fakecsi.ControllerGetCapabilities].Ended > 0
	})
	w.create(after)
	w.waitForOne(after.Name, "attached", isAttached)
	if !backend.Books().IsAttached("after", "id-n") {
		t.Error("the volume was marked attached without a call")
	}
}

// waitCondition waits until a driver is in a state. There is no event to wait for yet,
// so it asks until then.
func (w *world) waitCondition(h *hub.Hub, driver, want string) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		got, _ := shown(h, driver)
		if got.State == string(want) {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("the driver is %+v, want %s", got, want)
		}
	}
}

func TestVolumesWaitWhileTheDriverSaysThatItIsNotReady(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Probe = registry.Probe{Interval: 10 * time.Millisecond}
	})
	va := w.volume("v", driver, w.node("n", driver))
	updates, h := w.run()
	updates <- w.drivers
	w.waitCondition(h, driver, status.StateReady)
	notReady := true
	w.turn(backend, fakecsi.Knobs{NotReady: &notReady})
	w.waitCondition(h, driver, status.StateProbing)
	w.create(va)
	probes := backend.Books().Methods[fakecsi.Probe].Ended
	w.waitBooks(backend, "probed a few times more", func(b fakecsi.Books) bool { return b.Methods[fakecsi.Probe].Ended >= probes+5 })
	if got := publishes(backend); got != 0 {
		t.Errorf("%d publishes, want none", got)
	}
	notReady = false
	w.turn(backend, fakecsi.Knobs{NotReady: &notReady})
	w.waitForOne(va.Name, "attached", isAttached)
	if got := connections(backend); got != 1 {
		t.Errorf("connected %d times, want once", got)
	}
}

func TestDriverWhoseProbeHangsIsNotReady(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.Probe}}})
		v.pass(53 * time.Second) // an interval, and two Probes with their time limits
		if got := v.hub.Drivers()[0].State; got != status.StateProbing {
			t.Errorf("%s while a Probe hangs", got)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true})
		v.pass(30 * time.Second)
		if got := v.hub.Drivers()[0].State; got != status.StateReady {
			t.Errorf("%s when Probes are answered again", got)
		}
	})
}
