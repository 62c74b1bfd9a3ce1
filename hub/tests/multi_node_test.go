package tests

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// nodeCount is on how many nodes the volumes of these tests are: no more than attaches
// alone may have workers.
const nodeCount = 8

// nodes makes some nodes, on which a driver calls them id-n0, id-n1 and so on.
func (w *world) nodes(driver string, n int) []string {
	w.t.Helper()
	var nodes []string
	for i := range n {
		nodes = append(nodes, w.node(fmt.Sprintf("n%d", i), driver))
	}
	return nodes
}

// onNodes makes a volume with the name as its handle, and returns what attaches it to each
// of some nodes.
func (w *world) onNodes(name, driver string, mode corev1.PersistentVolumeAccessMode, nodes []string) []testbed.Object {
	w.t.Helper()
	w.create(testbed.PersistentVolume{Name: w.name(name), Driver: driver, Handle: name, AccessModes: []corev1.PersistentVolumeAccessMode{mode}})
	var all []testbed.Object
	for i, node := range nodes {
		all = append(all, testbed.VolumeAttachment{Name: w.name(fmt.Sprintf("%s-%d", name, i)), Driver: driver, Node: node, PersistentVolume: w.name(name)})
	}
	return all
}

// inFlight waits until a volume has so many calls in flight.
func (w *world) inFlight(b *fakecsi.Backend, volume string, n int) {
	w.t.Helper()
	w.waitBooks(b, fmt.Sprintf("%d calls in flight for %s", n, volume), func(books fakecsi.Books) bool { return books.VolumesInFlight[volume].Now == n })
}

// atMost checks how many calls a volume had in flight at most.
func (w *world) atMost(b *fakecsi.Backend, volume string, n int) {
	w.t.Helper()
	if most := b.Books().VolumesInFlight[volume].Max; most > n {
		w.t.Errorf("%s had %d calls in flight at once, want at most %d", volume, most, n)
	}
}

// waitsForVolume waits until a hub shows so many VolumeAttachments to wait for other work on
// their volume. It is to be asked: it tells no changes.
func (w *world) waitsForVolume(h *hub.Hub, driver string, n int) {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var waiting []status.Attachment
		for _, a := range h.Attachments(status.AttachmentFilter{Driver: driver}) {
			if a.Waiting.Kind == status.WaitForVolume {
				waiting = append(waiting, a)
			}
		}
		if len(waiting) == n {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("%d wait for their volume, want %d: %+v", len(waiting), n, waiting)
		}
	}
}

func nameOf(o testbed.Object) string { return o.(testbed.VolumeAttachment).Name }

// noFailures checks that nothing that was done for a driver has failed.
func (w *world) noFailures(h *hub.Hub, driver string) {
	w.t.Helper()
	for _, d := range h.Drivers() {
		if d.Name == driver && len(d.Failures) > 0 {
			w.t.Errorf("failures: %+v", d.Failures)
		}
	}
}

// With 50 nodes and calls of ten seconds, one after the other takes minutes.
func TestVolumeOfAMultiNodeModeIsAttachedToAllItsNodesSideBySide(t *testing.T) {
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadOnlyMany} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			driver, backend := w.driver("d", fakecsi.Options{})
			x := w.tap()
			w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
			all := w.onNodes("v", driver, mode, w.nodes(driver, nodeCount))
			updates, h := w.run()
			updates <- w.drivers
			w.create(all...)
			w.inFlight(backend, "v", nodeCount)
			w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
			w.waitAllAttached(nodeCount)
			w.checkBooks(map[string]int{driver: 1})
			if got := publishes(backend); got != nodeCount {
				t.Errorf("%d publishes for %d nodes", got, nodeCount)
			}
			// All of them need the finalizer on the PersistentVolume, and it is written once.
			w.noFailures(h, driver)
			guard, patches := patchOf("persistentvolumes", w.name("v")), 0
			for _, said := range x.heard() {
				if said == guard {
					patches++
				}
			}
			if patches != 1 {
				t.Errorf("the PersistentVolume was written %d times, want once", patches)
			}
		})
	}
}

func TestHangingNodeDoesNotHoldUpTheOtherNodesOfAVolume(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	nodes := w.nodes(driver, nodeCount)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume, Node: "id-n0"}}})
	all := w.onNodes("v", driver, corev1.ReadWriteMany, nodes)
	w.start()
	w.create(all[0])
	w.inFlight(backend, "v", 1)
	w.create(all[1:]...)
	for _, va := range all[1:] {
		w.waitForOne(nameOf(va), "attached", isAttached)
	}
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitAllAttached(nodeCount)

	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume, Node: "id-n0"}}})
	w.delete(all[0])
	w.inFlight(backend, "v", 1)
	w.delete(all[1:]...)
	w.waitFor("all but one detached", func(vas []*storagev1.VolumeAttachment) bool { return len(vas) == 1 })
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitNoneLeft()
	w.checkBooks(map[string]int{driver: 0})
}

func TestVolumeIsDetachedFromManyNodesSideBySide(t *testing.T) {
	for name, before := range map[string]func(w *world, stop func()){
		"that this process attached": func(*world, func()) {},
		"that another process attached": func(w *world, stop func()) {
			stop()
			w.start()
		},
		"whose PersistentVolume is gone": func(w *world, _ func()) {
			w.delete(testbed.PersistentVolume{Name: w.name("v")})
			w.patchVolume(w.name("v"), `{"metadata":{"finalizers":null}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			driver, backend := w.driver("d", fakecsi.Options{})
			all := w.onNodes("v", driver, corev1.ReadWriteMany, w.nodes(driver, nodeCount))
			stop := w.start()
			w.create(all...)
			w.waitAllAttached(nodeCount)
			before(w, stop)
			w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
			w.delete(all...)
			w.inFlight(backend, "v", nodeCount)
			w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
			w.waitNoneLeft()
			w.checkBooks(map[string]int{driver: 0})
		})
	}
}

// A pod moves: there is no reason to wait for the node that it has left.
func TestVolumeOfAMultiNodeModeIsAttachedWhileItIsDetachedElsewhere(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	all := w.onNodes("v", driver, corev1.ReadWriteMany, w.nodes(driver, 2))
	w.start()
	w.create(all[0])
	w.waitAllAttached(1)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
	w.delete(all[0])
	w.inFlight(backend, "v", 1)
	w.create(all[1])
	w.waitForOne(nameOf(all[1]), "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitFor("one left", testbed.AllAttached(1))
	w.checkBooks(map[string]int{driver: 1})
}

func TestVolumeOfASingleNodeModeHasOneCallAtATime(t *testing.T) {
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			driver, backend := w.driver("d", fakecsi.Options{})
			w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
			all := w.onNodes("v", driver, mode, w.nodes(driver, 2))
			updates, h := w.run()
			updates <- w.drivers
			w.create(all[0])
			w.inFlight(backend, "v", 1)
			w.create(all[1])
			w.waitsForVolume(h, driver, 1)
			w.atMost(backend, "v", 1)
			w.delete(all[1]) // it could not be attached to both
			w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
			w.waitFor("the first attached alone", testbed.AllAttached(1))
			w.atMost(backend, "v", 1)
			w.checkBooks(map[string]int{driver: 1})
		})
	}
}

func TestWithoutParallelMultiNodeAVolumeHasOneCallAtATime(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.ParallelMultiNode = false })
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	all := w.onNodes("v", driver, corev1.ReadWriteMany, w.nodes(driver, nodeCount))
	updates, h := w.run()
	updates <- w.drivers
	w.create(all...)
	w.inFlight(backend, "v", 1)
	w.waitsForVolume(h, driver, nodeCount-1)
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitAllAttached(nodeCount)

	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
	w.delete(all...)
	w.inFlight(backend, "v", 1)
	w.waitsForVolume(h, driver, nodeCount-1)
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitNoneLeft()
	w.atMost(backend, "v", 1)
	w.checkBooks(map[string]int{driver: 0})
}

func TestChangeOfParallelMultiNodeTakesEffectWhileCallsWait(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.ParallelMultiNode = false })
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	all := w.onNodes("v", driver, corev1.ReadWriteMany, w.nodes(driver, nodeCount))
	updates, h := w.run()
	updates <- w.drivers
	parallel := func(is bool, workers int) {
		updates <- w.snapshot(func(s registry.Snapshot) {
			d := s[driver]
			d.ParallelMultiNode, d.Workers = is, workers
			s[driver] = d
		})
		w.waitShown(h, driver, "with the workers", func(d status.Driver) bool {
			return slices.ContainsFunc(d.Lanes, func(l status.Lane) bool { return l.Operation == status.Drift && l.Workers == workers/4 })
		})
	}
	early, late := all[:nodeCount/2], all[nodeCount/2:]
	w.create(early...)
	w.inFlight(backend, "v", 1)
	w.waitsForVolume(h, driver, len(early)-1)
	parallel(true, 30)
	w.inFlight(backend, "v", len(early))

	parallel(false, 40) // what is in flight goes on
	w.create(late...)
	w.waitsForVolume(h, driver, len(late))
	w.atMost(backend, "v", len(early))
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitAllAttached(nodeCount)
	w.atMost(backend, "v", len(early))
	if c, p := connections(backend), publishes(backend); c != 1 || p != nodeCount {
		t.Errorf("connected %d times, %d publishes; want once, and one for each of %d nodes", c, p, nodeCount)
	}
	w.noFailures(h, driver)
	w.checkBooks(map[string]int{driver: 1})
}

// leave has a volume attached to some nodes by VolumeAttachments that are torn away: the
// driver cannot detach it, until its faults are cleared.
func (w *world) leave(backend *fakecsi.Backend, all []testbed.Object) {
	w.t.Helper()
	w.create(all...)
	w.waitAllAttached(len(all))
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
	failed := func(times int) func(fakecsi.Books) bool {
		return func(b fakecsi.Books) bool {
			return b.Methods[fakecsi.ControllerUnpublishVolume].Codes[codes.Internal.String()] >= times
		}
	}
	w.delete(all...) // first: a hub that is not asked to detach puts its finalizer back
	w.waitBooks(backend, "the detaches have failed", failed(len(all)))
	for _, va := range all {
		w.strip(nameOf(va))
	}
	w.waitBooks(backend, "the detaches of what was left have failed", failed(2*len(all)))
}

// attachedOnlyTo waits until a volume is attached to one node alone.
func (w *world) attachedOnlyTo(b *fakecsi.Backend, volume, nodeID string) {
	w.t.Helper()
	w.waitBooks(b, "attached to "+nodeID+" alone", func(books fakecsi.Books) bool {
		return len(books.Attached[volume]) == 1 && books.IsAttached(volume, nodeID)
	})
}

func TestHangingNodeDoesNotHoldUpTheDetachOfWhatWasLeftAttachedElsewhere(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Retry = registry.Retry{Initial: 10 * time.Millisecond, Max: 10 * time.Millisecond}
	})
	all := w.onNodes("v", driver, corev1.ReadWriteMany, w.nodes(driver, 3))
	w.start()
	w.leave(backend, all)
	var others []fakecsi.Fault
	for _, nodeID := range []string{"id-n1", "id-n2"} {
		others = append(others, fakecsi.Fault{Method: fakecsi.ControllerUnpublishVolume, Node: nodeID, Code: codes.Internal})
	}
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume, Node: "id-n0"}}, ClearFaults: true, Fail: others})
	w.waitBooks(backend, "the detach from n0 hangs", func(b fakecsi.Books) bool {
		return slices.ContainsFunc(b.Running, func(c fakecsi.Call) bool { return c.Node == "id-n0" })
	})
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
	w.attachedOnlyTo(backend, "v", "id-n0")
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitBooks(backend, "detached", func(b fakecsi.Books) bool { return len(b.Attached) == 0 })
	w.checkBooks(map[string]int{driver: 0})
}

func TestHangingNodeDoesNotHoldUpTheOthersWhenTheDriverIsLetGo(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.Retry.Initial, s.Retry.Max = time.Hour, time.Hour })
	w.options.Grace = time.Hour
	all := w.onNodes("v", driver, corev1.ReadWriteMany, w.nodes(driver, 6))
	stop := w.start()
	w.leave(backend, all)
	w.turn(backend, fakecsi.Knobs{ClearFaults: true, Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume, Node: "id-n0"}}})
	w.t.Cleanup(func() { w.turn(backend, fakecsi.Knobs{ReleaseAll: true}) }) // before the hub is stopped
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	w.attachedOnlyTo(backend, "v", "id-n0")
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	<-stopped
	w.checkBooks(map[string]int{driver: 0})
}

// Neither a PersistentVolume nor a publish of its own tells a process the mode.
func TestVolumeOfAnUnknownModeHasOneCallAtATime(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	all := w.onNodes("v", driver, corev1.ReadWriteMany, w.nodes(driver, 4))
	stop := w.start()
	w.create(all...)
	w.waitAllAttached(4)
	stop()
	w.delete(testbed.PersistentVolume{Name: w.name("v")})
	w.patchVolume(w.name("v"), `{"metadata":{"finalizers":null}}`)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
	w.delete(all...)
	updates, h := w.run()
	updates <- w.drivers
	w.inFlight(backend, "v", 1)
	w.waitsForVolume(h, driver, 3)
	w.inFlight(backend, "v", 1)
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitNoneLeft()
	w.checkBooks(map[string]int{driver: 0})
}

func TestHangingNodeDoesNotHoldUpANodeThatCameBackUnderAnotherID(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, time.Hour) // only the event can make it try again
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Node: "id-n1", Code: codes.Internal, Count: 1, AfterEffect: true}}})
	all := w.onNodes("v", driver, corev1.ReadWriteMany, w.nodes(driver, 2))
	w.start()
	w.create(all[1])
	w.waitForOne(nameOf(all[1]), "with an error", hasAttachError)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Node: "id-n0"}}})
	w.create(all[0])
	w.inFlight(backend, "v", 1)
	w.renumber(all[1].(testbed.VolumeAttachment).Node, "id-new")
	w.waitForOne(nameOf(all[1]), "attached", isAttached)
	if calls := done(backend, "v"); !slices.Equal(calls, []string{"ControllerUnpublishVolume id-n1", "ControllerPublishVolume id-new"}) {
		t.Errorf("calls %v, want it to be detached where it was and attached where it is to be", calls)
	}
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitAllAttached(2)
	w.checkBooks(map[string]int{driver: 1})
}
