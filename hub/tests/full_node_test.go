package tests

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// attachMany creates VolumeAttachments for volumes v00, v01, ... of the node n, a second apart, and returns them.
func (v *virtual) attachMany(n int) []testbed.VolumeAttachment {
	v.t.Helper()
	var all []testbed.VolumeAttachment
	for i := range n {
		name := fmt.Sprintf("v%02d", i)
		v.volume(name)
		all = append(all, v.attach(name)[0])
	}
	return all
}

// attachedOf returns which of VolumeAttachments are attached, by index.
func (v *virtual) attachedOf(vas []testbed.VolumeAttachment) []int {
	v.t.Helper()
	var which []int
	for i, va := range vas {
		if got := v.get(va.Name); got != nil && got.Status.Attached {
			which = append(which, i)
		}
	}
	return which
}

// limit sets how many volumes of the driver a CSINode says that a node can have.
func (v *virtual) limit(node string, count int32) {
	v.t.Helper()
	n, err := v.kube.StorageV1().CSINodes().Get(v.ctx, node, metav1.GetOptions{})
	if err == nil {
		n.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: &count}
		_, err = v.kube.StorageV1().CSINodes().Update(v.ctx, n, metav1.UpdateOptions{})
	}
	if err != nil {
		v.t.Fatal(err)
	}
}

// inFullNode calls f with a hub that has attached volumes 0 and 1 to node n, which can have two, and with four that
// wait. The fallback waits for hours. stop ends the hub.
func inFullNode(t *testing.T, f func(v *virtual, vas []testbed.VolumeAttachment, stop func())) {
	t.Helper()
	inVirtualTime(t, func(v *virtual) {
		v.driver.Retry.Initial, v.driver.Retry.Max = 5*time.Hour, 5*time.Hour
		v.driver.StuckAfter = 24 * time.Hour
		v.places(2)
		v.register("n", "id-n")
		stop := v.start()
		vas := v.attachMany(6)
		v.wantOnly(vas, 0, 1)
		v.wantPublishes("two succeed, and one finds that the node is full", 3)
		f(v, vas, stop)
	})
}

func TestDetachLetsTheOldestAttachGoToAFullNode(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ func()) {
		for i, va := range []testbed.VolumeAttachment{vas[1], vas[0], vas[2]} {
			v.delete(va)
			v.pass(time.Second)
			v.wantPublishes("one for each detach", 4+i)
		}
		v.wantOnly(vas, 3, 4)
	})
}

func TestFullNodeIsShown(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ func()) {
		d := v.status()
		if len(d.FullNodes) != 1 || d.WaitingForCapacity != 4 {
			t.Fatalf("full nodes %+v, %d waiting, want one with four", d.FullNodes, d.WaitingForCapacity)
		}
		if n := d.FullNodes[0]; n.Node != "n" || n.Waiting != 4 || !slices.Equal(n.Line, []string{"v03-n", "v04-n", "v05-n", "v02-n"}) ||
			n.Since.IsZero() || n.NextTry.Before(time.Now()) {
			t.Errorf("%+v, want the node and who is in line", n)
		}
		for i, va := range append(slices.Clone(vas[3:]), vas[2]) { // the one that was refused goes last
			a := v.seen(va.Name)
			if want := (status.Wait{Kind: status.WaitForCapacity, Node: "n", Position: i + 1}); a.Waiting != want || a.State != status.Waiting {
				t.Errorf("%s is %s, for %+v, want it to wait for %+v", va.Name, a.State, a.Waiting, want)
			}
			if object := v.get(va.Name); (object.Status.AttachError != nil) != (i == 3) {
				t.Errorf("%s has the attachError %v, want one for the refused attach only", va.Name, object.Status.AttachError)
			}
		}
		if lines := v.logged("Attach failed"); len(lines) != 1 || lines[0]["cause"] != "ResourceExhausted" || lines[0]["retryIn"] != nil {
			t.Errorf("logged %v, want one line without the time of a next try", lines)
		}
	})
}

func TestChangedCSINodeStartsAChain(t *testing.T) {
	for name, change := range map[string]func(v *virtual){
		"another limit":       func(v *virtual) { v.limit("n", 5) },
		"the driver is back":  func(v *virtual) { v.register("n", "id-n") },
		"and another node ID": func(v *virtual) { v.register("n", "id-new") },
	} {
		t.Run(name, func(t *testing.T) {
			inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ func()) {
				v.places(5)
				v.pass(time.Minute)
				v.wantOnly(vas, 0, 1)
				change(v)
				v.pass(time.Minute)
				if got := len(v.attachedOf(vas)); got < 5 {
					t.Errorf("%d are attached, want five", got)
				}
				if got := v.ended(publish); got > 7 {
					t.Errorf("%d calls, want the four that may go and no other", got)
				}
			})
		})
	}
}

func TestFallbackTriesOneAttachAtATime(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.places(1)
		v.register("n", "id-n")
		v.start()
		vas := v.attachMany(4)
		v.pass(time.Hour)
		if got := v.ended(publish); got > 80 {
			t.Errorf("%d calls in an hour, want one a minute", got)
		}
		for _, va := range vas[1:] {
			if tries := v.calls(publish, va.PersistentVolume, "id-n"); tries < 20 {
				t.Errorf("%s was tried %d times, want its turn each time", va.Name, tries)
			}
		}
		v.places(0)
		before := v.ended(publish)
		v.pass(time.Minute)
		v.wantOnly(vas, 0, 1, 2, 3)
		v.wantPublishes("each success lets the next go", before+3)
	})
}

func TestFailedAttachPassesItsPlaceOn(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ func()) {
		v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: publish, Volume: "v02", Code: codes.Internal, Count: 1}}})
		v.delete(vas[0])
		v.pass(time.Minute)
		v.wantOnly(vas, 1, 3)
		v.delete(vas[1])
		v.pass(time.Minute)
		v.wantOnly(vas, 3, 4) // the backoff of v02 lasts
	})
}

func TestAttachThatIsDeletedInTheLineCostsNoPlace(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ func()) {
		v.delete(vas[3]) // was never called
		v.pass(time.Second)
		v.wantGone(vas[3].Name)
		v.wantPublishes("nobody goes", 3)
		if n := v.status().WaitingForCapacity; n != 3 {
			t.Errorf("%d wait", n)
		}
		v.delete(vas[2]) // was refused: it may be attached
		v.pass(time.Second)
		v.wantGone(vas[2].Name)
		if n := v.calls(unpublish, "v02", "id-n"); n != 1 {
			t.Errorf("the attach that was refused is detached %d times", n)
		}
		v.delete(vas[0])
		v.pass(time.Second)
		v.wantOnly(vas, 1, 5) // its detach let 4 go, which was refused
	})
}

func TestDriverThatIsAwayKeepsTheLine(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ func()) {
		v.cut()
		v.delete(vas[0])
		v.pass(time.Minute)
		v.mend()
		v.pass(5 * time.Minute)
		v.wantOnly(vas, 1, 3)
		v.wantPublishes("no other is tried when the driver is back", 4)
	})
}

// This process sees nothing but the end of the VolumeAttachment.
func TestDetachOfAnotherProcessLetsAnAttachGo(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, stop func()) {
		stop() // the next hub has not worked on vas[0], and finds out anew that the node is full
		v.start()
		v.pass(time.Minute)
		before := v.ended(publish)
		if waiting := v.status().WaitingForCapacity; before > 7 || waiting != 4 {
			t.Errorf("%d calls, %d wait, want at most one call for each that waits", before, waiting)
		}
		v.cut()
		v.pass(time.Second)
		v.delete(vas[0])
		v.lose("v00")
		v.update(vas[0].Name, func(va *storagev1.VolumeAttachment) { va.Status.Attached = false })
		v.stripFinalizers(vas[0].Name)
		v.pass(time.Second)
		v.mend()
		v.pass(5 * time.Minute)
		if got := v.attachedOf(vas); len(got) != 2 {
			t.Errorf("%v are attached, want one that takes the place", got)
		}
		v.wantPublishes("one takes the place", before+1)
	})
}

// The write of the status fails after the call: the volume is attached, and needs no other place.
func TestPublishedVolumeDoesNotWaitForAPlace(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.places(1)
		v.register("n", "id-n")
		v.start()
		v.reply(http.StatusServiceUnavailable, patches("volumeattachments/status", "v00-n"))
		vas := v.attachMany(2)
		v.pass(time.Minute)
		if got := v.status().FullNodes; len(got) != 1 || !slices.Equal(got[0].Line, []string{"v01-n"}) {
			t.Errorf("%+v, want v01 alone to wait for a place", got)
		}
		v.api.Intercept(nil)
		v.pass(20 * time.Second)
		v.wantOnly(vas, 0)
	})
}

// The process ended after the publish, before it wrote the status. Its VolumeAttachment waited in the line of the full node for
// a place that it had: 40 minutes with fifty others.
func TestVolumeThatHasItsPlaceOnAFullNodeIsAttachedAtOnce(t *testing.T) {
	eachInVirtualTime(t, map[string]func(v *virtual, va *storagev1.VolumeAttachment){
		"without an error": func(*virtual, *storagev1.VolumeAttachment) {},
		"after a timeout": func(_ *virtual, va *storagev1.VolumeAttachment) {
			va.Status.AttachError = &storagev1.VolumeError{Message: "rpc error: code = DeadlineExceeded desc = no answer"}
		},
		"attached, with its finalizer stripped": func(_ *virtual, va *storagev1.VolumeAttachment) { va.Finalizers, va.Status.Attached = nil, true },
		// It must not get into the line of its node, in which it would wait for ever.
		"a read fails at a takeover": func(v *virtual, va *storagev1.VolumeAttachment) {
			v.leased()
			began := time.Now()
			v.reply(http.StatusServiceUnavailable, func(r fakekube.Request) bool {
				return time.Since(began) < 8*time.Second && reads("volumeattachments")(r) && r.Name == va.Name
			})
		},
	}, func(v *virtual, change func(v *virtual, va *storagev1.VolumeAttachment)) {
		v.driver.Drift.Interval = 0
		v.places(1)
		v.withNode("zz")
		v.attachMany(50)
		va := begun(v.attachment("zz", "n"), "id-n")
		change(v, va)
		v.write(va)
		v.attachByHand("zz", "id-n")
		v.start()
		v.pass(20 * time.Second)
		v.wantAttached(va.Name)
		if !hasOwnFinalizer(v.get(va.Name), virtualDriver) {
			v.t.Error("the finalizer is missing")
		}
	})
}

// After a restart nobody knows which nodes are full. The errors in the statuses say for whom there was no place.
func TestAttachesThatFoundAFullNodeDoNotAllTryAgainAfterARestart(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval, v.driver.Workers = 0, 2
		v.driver.Retry.Initial, v.driver.Retry.Max = 10*time.Second, 10*time.Second
		v.places(1)
		v.register("n", "id-n")
		stop := v.start()
		v.attachMany(30)
		v.pass(30 * time.Minute) // each has been refused
		stop()
		before := v.ended(publish)
		v.start()
		v.pass(5 * time.Second)
		if n := v.ended(publish) - before; n < 1 || n > v.driver.Workers {
			t.Errorf("%d calls after the restart, want at most one for each of %d workers until it is known that the node is full", n, v.driver.Workers)
		}
	})
}

// Tries in a loop of 90 attaches that cannot succeed keep the driver from the detaches that would help them.
func TestFullNodeGetsNoMoreCallsThanItHasPlaces(t *testing.T) {
	const attaches, places, detaches = 100, 10, 20
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.setKnobs(backend, fakecsi.Knobs{MaxVolumesPerNode: new(places), Latency: map[fakecsi.Method]fakecsi.Latency{publish: {Base: 5 * time.Millisecond}}})
	w.retry(driver, time.Minute) // until then only a detach lets the next one try
	node := w.node("n", driver)
	var volumes, all []testbed.Object
	for i := range attaches {
		name := w.name(fmt.Sprintf("v%d", i))
		volumes = append(volumes, testbed.PersistentVolume{Name: name, Driver: driver, Handle: fmt.Sprintf("v%d", i)})
		all = append(all, testbed.VolumeAttachment{Name: name, Driver: driver, Node: node, PersistentVolume: name})
	}
	w.create(volumes...)
	w.start()
	w.create(all...)
	calls := func(detached int) {
		t.Helper()
		most := places + registry.DefaultSettings().Workers + detached
		if got := backend.Books().Methods[publish].Ended; got > most {
			t.Errorf("%d calls after %d detaches, want at most %d", got, detached, most)
		}
	}
	w.waitShown(driver, "90 that wait", func(d status.Driver) bool { return d.WaitingForCapacity == attaches-places })
	calls(0)
	full := func(left int) (oldest string) {
		t.Helper()
		w.waitFor("all places taken", func(vas []*storagev1.VolumeAttachment) bool {
			attached := slices.DeleteFunc(slices.Clone(vas), func(va *storagev1.VolumeAttachment) bool { return !va.Status.Attached || va.DeletionTimestamp != nil })
			if len(vas) != left || len(attached) != places {
				return false
			}
			oldest = attached[0].Name
			return true
		})
		return oldest
	}
	for i := range detaches {
		w.delete(testbed.VolumeAttachment{Name: full(attaches - i)})
	}
	full(attaches - detaches)
	calls(detaches)
	w.checkBooks(map[string]int{driver: places})
}

// wantOnly checks which of VolumeAttachments are attached, by index.
func (v *virtual) wantOnly(vas []testbed.VolumeAttachment, want ...int) {
	v.t.Helper()
	if got := v.attachedOf(vas); !slices.Equal(got, want) {
		v.t.Errorf("%v are attached, want %v", got, want)
	}
}

// places sets how many volumes the driver attaches to a node; 0: any number.
func (v *virtual) places(n int) {
	v.t.Helper()
	v.setKnobs(fakecsi.Knobs{MaxVolumesPerNode: &n})
}

// A driver refuses one volume for ever, for example because of a quota. Others must not wait until that volume is
// tried again.
func TestVolumeThatIsAlwaysRefusedDoesNotDelayANewOne(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("bad")
		v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: publish, Volume: "bad", Code: codes.ResourceExhausted}}})
		v.start()
		v.attach("bad")
		v.pass(20 * time.Minute)
		for i := range 5 {
			name := fmt.Sprint("good", i)
			v.volume(name)
			v.create(v.attachment(name, "n"))
			v.pass(2 * v.driver.Retry.Initial)
			v.wantAttached(name + "-n")
			v.pass(7 * time.Minute)
		}
		v.setKnobs(healed)
		v.pass(10 * time.Minute)
		v.wantAttached("bad-n")
	})
}

// The driver throttles once: the other attaches must not go one after the other from then on.
func TestRefusalThatPassesDoesNotSlowTheNodeDown(t *testing.T) {
	const attaches, takes = 20, 10 * time.Second
	inVirtualTime(t, func(v *virtual) {
		v.withNode("first")
		v.setKnobs(fakecsi.AttachLatency(fakecsi.Latency{Base: takes}))
		v.setKnobs(failingOnce(publish, codes.ResourceExhausted))
		v.start()
		v.attach("first")
		v.pass(takes)
		vas := v.many("v", attaches-1)
		v.pass(6 * takes) // 1, 2, 4, 8 and 5 go side by side
		if got := len(v.attachedOf(append(vas, v.attachment("first", "n")))); got != attaches {
			t.Errorf("%d are attached, want %d", got, attaches)
		}
	})
}

// The places become free without a detach that the hub sees: each success lets two more go, so the driver refuses at
// most one more than it attaches. One more goes if the wait of an attach ends in the meantime.
func TestTriesAreRefusedHardlyMoreOftenThanTheySucceed(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.places(1)
		v.register("n", "id-n")
		v.start()
		vas := v.attachMany(60)
		v.pass(10 * time.Minute)
		v.places(11)
		before := v.ended(publish)
		v.limit("n", 11)
		v.pass(500 * time.Millisecond)
		if calls, got := v.ended(publish)-before, len(v.attachedOf(vas))-1; got != 10 || calls > 2*got+2 {
			t.Errorf("%d calls, of which %d succeeded, want ten that succeed and at most twelve that do not", calls, got)
		}
	})
}

// An attach that has just written its note, and has not called, needs a place.
func TestAttachThatWritesItsNoteWhileItsNodeBecomesFullWaits(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("v", "w")
		v.start()
		v.pass(time.Second)
		v.setKnobs(fakecsi.AttachLatency(fakecsi.Latency{Base: 100 * time.Millisecond}))
		v.setKnobs(failing(publish, codes.ResourceExhausted))
		v.slow(300*time.Millisecond, patches("volumeattachments", "w-n"))
		v.create(v.attachment("v", "n"), v.attachment("w", "n"))
		v.pass(450 * time.Millisecond)
		v.wantPublishes("the node is full", 1)
	})
}
