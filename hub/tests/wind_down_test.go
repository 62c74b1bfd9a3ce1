package tests

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// windDown is the snapshot in which all drivers are served only until nothing is left.
func (w *world) windDown() registry.Snapshot {
	return w.snapshot(func(s registry.Snapshot) {
		for name, d := range s {
			d.WindDown = true
			s[name] = d
		}
	})
}

// waitNotServed waits until a hub has ended its work for a driver, and its connection. It
// is to be asked: it tells no changes.
func (w *world) waitNotServed(h *hub.Hub, driver string) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		got, served := shown(h, driver)
		if !served {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("the driver is %+v, and still served", got)
		}
	}
}

func TestWindDownDoesNotInterruptADriverThatIsServed(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	node := w.node("n", driver)
	attached, slow, late := w.volume("attached", driver, node), w.volume("slow", driver, node), w.volume("late", driver, node)
	updates, h := w.run()
	updates <- w.drivers
	w.create(attached)
	w.waitForOne(attached.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "slow"}}})
	w.create(slow)
	w.waitBooks(backend, "publish is called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	for range 3 {
		updates <- w.windDown()
		updates <- w.drivers
	}
	updates <- w.windDown()
	w.create(late) // its driver is served for what is left, and nothing says attachRequired: false
	w.waitForOne(late.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitForOne(slow.Name, "attached", isAttached)
	if got := connections(backend); got != 1 || publishes(backend) != 3 {
		t.Errorf("%d connections and %d publishes, want 1 and 3", got, publishes(backend))
	}
	w.delete(attached, slow, late)
	w.waitNoneLeft()
	w.waitNotServed(h, driver)
	w.checkBooks(map[string]int{driver: 0})
}

func TestDriverThatWindsDownComesBackForAVolumeThatIsDeletedLater(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	other, _ := w.driver("other", fakecsi.Options{})
	node := w.node("n", driver, other)
	pv := testbed.PersistentVolume{Name: w.name("v"), Driver: driver}
	w.create(pv)
	w.patchVolume(pv.Name, `{"metadata":{"finalizers":["`+attach.Finalizer(driver)+`"]}}`)
	updates, h := w.run()
	updates <- w.snapshot(func(s registry.Snapshot) {
		d := s[driver]
		d.WindDown = true
		s[driver] = d
	})
	// That the other one is served tells that the snapshot was looked at.
	va := w.volume("of-other", other, node)
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	if got := connections(backend); got != 0 {
		t.Errorf("%d connections to a driver of which nothing has to be undone", got)
	}
	w.delete(pv)
	watcher, err := testbed.WatchPersistentVolumes(w.ctx, w.plane.Clientset(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Close)
	err = watcher.WaitFor(w.ctx, "the volume gone", func(all []*corev1.PersistentVolume) bool {
		return !slices.ContainsFunc(all, func(v *corev1.PersistentVolume) bool { return v.Name == pv.Name })
	})
	if err != nil {
		t.Fatal(err)
	}
	w.waitNotServed(h, driver)
}

// Nothing in the API tells of such a volume any more.
func TestDriverThatWindsDownIsServedUntilAVolumeOfAVanishedAttachmentIsDetached(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Retry = registry.Retry{Initial: 10 * time.Millisecond, Max: 10 * time.Millisecond}
	})
	va := w.volume("v", driver, w.node("n", driver))
	updates, h := w.run()
	updates <- w.drivers
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
	w.delete(va)
	w.strip(va.Name)
	w.waitNoneLeft()
	updates <- w.windDown()
	tries := backend.Books().Methods[fakecsi.ControllerUnpublishVolume].Ended
	w.waitBooks(backend, "tried a few times more", func(b fakecsi.Books) bool {
		return b.Methods[fakecsi.ControllerUnpublishVolume].Ended > tries+5
	})
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
	w.waitNotServed(h, driver)
	if got := connections(backend); got != 1 {
		t.Errorf("%d connections, want 1: the driver was let go of before its volume was detached", got)
	}
	w.checkBooks(map[string]int{driver: 0})
}

func TestAttachmentsThatNeedNoDriverAreNotShownAsUnserved(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	node := w.node("n", driver)
	va, foreign := w.volume("v", driver, node), w.volume("foreign", w.name("foreign"), node)
	updates, h := w.run()
	updates <- w.drivers
	w.create(va, foreign)
	w.waitForOne(va.Name, "attached", isAttached)
	w.create(testbed.CSIDriver{Name: driver, NoAttach: true})
	updates <- w.windDown()
	w.waitNotServed(h, driver)
	unserved, since := h.Unserved()
	if unserved[driver] != 0 || unserved[foreign.Driver] != 1 {
		t.Errorf("unserved are %v, want 1 of %s and none of %s", unserved, foreign.Driver, driver)
	}
	if _, waits := since[driver]; waits || !since[foreign.Driver].Equal(w.get(foreign.Name).CreationTimestamp.Time) {
		t.Errorf("waiting are %v, want %s since its creation and none of %s", since, foreign.Driver, driver)
	}
	for name, want := range map[string]status.AttachmentState{va.Name: status.Idle, foreign.Name: status.Unserved} {
		if got := h.Attachments(status.AttachmentFilter{Name: name}); len(got) != 1 || got[0].State != want {
			t.Errorf("%s is shown as %+v, want it %s", name, got, want)
		}
	}
}
