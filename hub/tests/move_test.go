package tests

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestVolumeIsDetachedFromOneNodeBeforeItIsAttachedToAnother(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	first := w.volume("v", driver, w.node("n1", driver))
	second := testbed.VolumeAttachment{Name: w.name("second"), Driver: driver, Node: w.node("n2", driver), PersistentVolume: first.PersistentVolume}
	w.start()
	w.create(first)
	w.waitAttached(first)
	w.setKnobs(backend, hanging(unpublish))
	w.delete(first)
	w.waitInFlight(backend, 1)
	w.create(second)
	w.fence("fence", driver, second.Node)
	w.setKnobs(backend, healed)
	w.waitAttached(second)
	var order []string
	for _, c := range backend.Books().Calls {
		if c.Volume == "v" {
			order = append(order, string(c.Method)+" "+c.Node)
		}
	}
	if want := []string{"ControllerPublishVolume id-n1", "ControllerUnpublishVolume id-n1", "ControllerPublishVolume id-n2"}; !slices.Equal(order, want) {
		t.Errorf("calls %q\nwant  %q", order, want)
	}
	w.checkBooks(map[string]int{driver: 2})
}

func TestVolumeOfASingleNodeModeHasOneCallAtATime(t *testing.T) {
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod} {
		inVirtualTime(t, func(v *virtual) {
			v.setKnobs(hanging(publish))
			vas := v.onNodes(2, mode)
			v.start()
			v.create(vas[0])
			v.pass(time.Second)
			v.create(vas[1])
			v.pass(time.Second)
			v.wantInFlight(1, 1)
			v.delete(vas[1]) // it could not be attached to both
			v.setKnobs(healed)
			v.pass(time.Second)
			v.wantAttached(vas[0].Name)
			v.wantCalls("v", "publish id-n0")
		})
	}
}

const nodeCount = 8 // no more than attaches alone may have workers

// onNodes makes nodes n0, n1, ..., on which the driver calls them id-n0, id-n1, ..., and volume v, and returns what attaches it to
// each of them.
func (v *virtual) onNodes(n int, mode corev1.PersistentVolumeAccessMode) (vas []testbed.VolumeAttachment) {
	v.t.Helper()
	v.volume("v", mode)
	for i := range n {
		node := fmt.Sprint("n", i)
		v.register(node, "id-"+node)
		vas = append(vas, v.attachment("v", node))
	}
	return vas
}

// wantInFlight checks how many calls volume v has in flight, and that others wait for them.
func (v *virtual) wantInFlight(n, waiting int) {
	v.t.Helper()
	waits := slices.DeleteFunc(v.hub.Attachments(status.AttachmentFilter{Driver: virtualDriver}), func(a status.Attachment) bool { return a.Waiting.Kind != status.WaitForVolume })
	if now := v.backend.Books().VolumesInFlight["v"].Now; now != n || len(waits) != waiting {
		v.t.Errorf("%d calls in flight and %d that wait for their volume, want %d and %d", now, len(waits), n, waiting)
	}
}

// With 50 nodes and calls of ten seconds, one after the other takes minutes.
func TestVolumeOfAMultiNodeModeHasACallForEachNodeAtATime(t *testing.T) {
	type row struct {
		mode           corev1.PersistentVolumeAccessMode
		serial         bool // parallelMultiNode: false
		between        func(v *virtual, stop func())
		attach, detach int
	}
	same := func(*virtual, func()) {}
	eachInVirtualTime(t, map[string]row{
		"ReadWriteMany":                  {corev1.ReadWriteMany, false, same, nodeCount, nodeCount},
		"ReadOnlyMany":                   {corev1.ReadOnlyMany, false, same, nodeCount, nodeCount},
		"without parallelMultiNode":      {corev1.ReadWriteMany, true, same, 1, 1},
		"another process attached it":    {corev1.ReadWriteMany, false, func(v *virtual, stop func()) { stop(); v.start() }, nodeCount, nodeCount},
		"its PersistentVolume is gone":   {corev1.ReadWriteMany, false, func(v *virtual, _ func()) { v.removeVolume("v") }, nodeCount, nodeCount},
		"nobody knows the mode any more": {corev1.ReadWriteMany, false, func(v *virtual, stop func()) { stop(); v.removeVolume("v"); v.start() }, nodeCount, 1},
	}, func(v *virtual, c row) {
		v.driver.ParallelMultiNode = !c.serial
		vas := v.onNodes(nodeCount, c.mode)
		v.setKnobs(hanging(publish))
		v.slow(100*time.Millisecond, patches("persistentvolumes"))
		stop := v.start()
		v.createAll(vas)
		v.pass(time.Second)
		v.wantInFlight(c.attach, nodeCount-c.attach)
		v.setKnobs(healed)
		v.pass(time.Minute)
		for _, va := range vas {
			v.wantAttached(va.Name)
		}
		// All of them need the finalizer on the PersistentVolume, and it is written once.
		if n := v.api.Count("patch", "persistentvolumes"); n != 1 || v.begun(publish) != nodeCount || len(v.status().Failures) > 0 {
			v.t.Errorf("%d writes of the PersistentVolume, %d publishes, failures %+v", n, v.begun(publish), v.status().Failures)
		}
		c.between(v, stop)
		v.pass(time.Second)
		v.setKnobs(hanging(unpublish))
		v.deleteAll(vas)
		v.pass(time.Second)
		v.wantInFlight(c.detach, nodeCount-c.detach)
		v.setKnobs(healed)
		v.pass(time.Minute)
		for _, va := range vas {
			v.wantGone(va.Name)
		}
		v.wantNothingAttached()
	})
}

func TestHangingNodeDoesNotHoldUpTheOtherNodesOfAVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		vas := v.onNodes(nodeCount, corev1.ReadWriteMany)
		hang := func(m fakecsi.Method) { v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: m, Node: "id-n0"}}}) }
		hang(publish)
		v.start()
		v.create(vas[0])
		v.pass(time.Second)
		v.createAll(vas[1 : nodeCount-1])
		v.pass(time.Second)
		for _, va := range vas[1 : nodeCount-1] {
			v.wantAttached(va.Name)
		}
		v.setKnobs(healed)
		v.pass(time.Second)
		hang(unpublish)
		v.delete(vas[0])
		v.pass(time.Second)
		v.create(vas[nodeCount-1]) // a Pod moves: there is no reason to wait for the node that it has left
		v.pass(time.Second)
		v.wantAttached(vas[nodeCount-1].Name)
		v.deleteAll(vas[1:])
		v.pass(time.Second)
		for _, va := range vas[1:] {
			v.wantGone(va.Name)
		}
		v.setKnobs(healed)
		v.pass(time.Second)
		v.wantNothingAttached()
	})
}

func TestChangeOfParallelMultiNodeTakesEffectWhileCallsWait(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.ParallelMultiNode = false
		v.setKnobs(hanging(publish))
		vas := v.onNodes(nodeCount, corev1.ReadWriteMany)
		const early = nodeCount / 2
		v.start()
		v.createAll(vas[:early])
		v.pass(time.Second)
		v.wantInFlight(1, early-1)
		parallel := func(is bool) {
			v.driver.ParallelMultiNode = is
			v.serve()
			v.pass(time.Second)
		}
		parallel(true)
		v.wantInFlight(early, 0)
		parallel(false) // what is in flight goes on
		v.createAll(vas[early:])
		v.pass(time.Second)
		v.wantInFlight(early, nodeCount-early)
		v.setKnobs(healed)
		v.pass(time.Minute)
		for _, va := range vas {
			v.wantAttached(va.Name)
		}
		if n, most := v.begun(publish), v.backend.Books().VolumesInFlight["v"].Max; v.connections() != 1 || n != nodeCount || most != early {
			t.Errorf("%d connections, %d publishes, at most %d at once; want 1, %d and %d", v.connections(), n, most, nodeCount, early)
		}
	})
}

func TestHangingNodeDoesNotHoldUpTheDetachOfWhatWasLeftAttachedElsewhere(t *testing.T) {
	eachInVirtualTime(t, map[string]bool{"the term goes on": false, "the driver is let go": true}, func(v *virtual, letGo bool) {
		v.options.Grace = time.Hour
		if letGo { // so that only its end makes the hub try again
			v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		}
		vas := v.onNodes(6, corev1.ReadWriteMany)
		stop := v.start()
		v.createAll(vas)
		v.pass(time.Second)
		v.setKnobs(failing(unpublish, codes.Internal))
		v.deleteAll(vas)
		v.pass(time.Second)
		for _, va := range vas {
			v.stripFinalizers(va.Name)
		}
		v.pass(time.Second)
		v.wantDangling(6)
		v.setKnobs(fakecsi.Knobs{ClearFaults: true, Hang: []fakecsi.Hang{{Method: unpublish, Node: "id-n0"}}})
		if letGo {
			go stop()
		}
		v.pass(100 * time.Second) // less than a call may take
		if at := v.backend.Books().Attached["v"]; len(at) != 1 || !v.has("v", "id-n0") {
			v.t.Errorf("attached to %v, want id-n0 alone", at)
		}
		v.setKnobs(healed)
		v.pass(2 * time.Minute)
		v.wantNothingAttached()
	})
}

// No publish of a single-node volume starts while an unpublish elsewhere is due or in flight; an unpublish that
// backs off holds nobody up, because the driver decides then. A driver that could not be asked has decided nothing.
func TestAttachElsewhereWaitsForADetachUntilTheDriverHasAnsweredIt(t *testing.T) {
	unreadable := func(v *virtual) {
		v.reply(http.StatusServiceUnavailable, func(r fakekube.Request) bool { return r.Resource == "secrets" && r.Name == "publish" })
	}
	refused := func(v *virtual) { v.refuseToDetach("id-n", codes.Internal) }
	deleted := func(v *virtual, va testbed.VolumeAttachment) { v.delete(va) }
	type row struct {
		leave func(*virtual, testbed.VolumeAttachment)
		fail  func(*virtual)
		asked bool // the driver is asked to attach it elsewhere meanwhile
	}
	eachInVirtualTime(t, map[string]row{
		"deleted, its secret cannot be read":  {deleted, unreadable, false},
		"deleted, the driver refuses":         {deleted, refused, true},
		"vanished, its secret cannot be read": {(*virtual).deleteWithoutDetach, unreadable, false},
		"vanished, the driver refuses":        {(*virtual).deleteWithoutDetach, refused, true},
	}, func(v *virtual, c row) {
		v.violates = c.asked
		v.create(testbed.Secret{Name: "publish", Data: map[string]string{"key": "one"}})
		v.register("n", "id-n")
		v.register("other", "id-other")
		pv := testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("publish")}
		v.create(pv)
		v.start()
		va := v.attach("v")[0]
		c.fail(v)
		c.leave(v, va)
		v.pass(10 * time.Second)
		pv.Secret = nil // what is asked for elsewhere needs no secret
		v.recreate(pv)
		elsewhere := v.attachment("v", "other")
		v.create(elsewhere)
		v.pass(10 * time.Minute)
		if n := v.calls(publish, "v", "id-other"); n > 0 != c.asked {
			v.t.Errorf("%d calls to attach it elsewhere; want some: %v", n, c.asked)
		}
		v.api.Intercept(nil)
		v.setKnobs(healed)
		v.pass(2 * time.Minute)
		v.wantAttached(elsewhere.Name)
		if v.has("v", "id-n") {
			v.t.Error("it is attached where it was, too")
		}
	})
}

// A webhook refused the write that removes the finalizer: the volume was detached, and was attached nowhere else.
func TestAttachElsewhereDoesNotWaitForTheFinalizerOfWhatIsDetached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.reply(http.StatusInternalServerError, patches("volumeattachments", va.Name))
		v.delete(va)
		v.register("other", "id-other")
		v.create(v.attachment("v", "other"))
		v.pass(10 * time.Minute)
		v.wantAttached("v-other")
		v.wantCalls("v", "publish id-n", "unpublish id-n", "publish id-other")
	})
}

// While the one hangs (timeout: 2m), the backoff of the other ends (at most a quarter of retry.max: 15s): one of two was always
// due or in flight, and the attach never began.
func TestDetachesThatTimeOutDoNotStarveTheAttachElsewhere(t *testing.T) {
	for n := 1; n <= 3; n++ {
		inVirtualTime(t, func(v *virtual) {
			v.violates = true // the driver is asked to attach the volume where it may be attached elsewhere
			v.driver.Drift.Interval = 0
			v.register("z", "id-z")
			vas := v.onNodes(n, corev1.ReadWriteOnce)
			for _, va := range vas {
				v.write(written(va, "id-"+va.Node))
			}
			v.setKnobs(hanging(unpublish))
			v.start()
			v.pass(time.Second)
			v.deleteAll(vas)
			v.create(v.attachment("v", "z"))
			want := time.Duration(n)*v.driver.Timeout + 10*time.Second
			v.pass(want)
			if v.calls(publish, "v", "id-z") == 0 {
				t.Errorf("with %d detaches the driver was not asked to publish the volume on node z within %v: when each detach has had a try", n, want)
			}
			v.setKnobs(healed)
		})
	}
}
