package tests

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// crowd creates VolumeAttachments for volumes v00, v01, ... of the node n, a second apart, and returns them.
func (v *virtual) crowd(n int) []testbed.VolumeAttachment {
	v.t.Helper()
	var all []testbed.VolumeAttachment
	for i := range n {
		name := fmt.Sprintf("v%02d", i)
		v.volume(name)
		all = append(all, v.attachment(name, "n"))
		v.create(all[i])
		v.pass(time.Second)
	}
	return all
}

// published counts the calls of ControllerPublishVolume.
func (v *virtual) published() int {
	return v.backend.Books().Methods[fakecsi.ControllerPublishVolume].Ended
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

// wantAttached fails the test if other VolumeAttachments are attached.
func (v *virtual) wantAttached(vas []testbed.VolumeAttachment, want ...int) {
	v.t.Helper()
	if got := v.attachedOf(vas); !slices.Equal(got, want) {
		v.t.Errorf("%v are attached, want %v", got, want)
	}
}

// limit sets how many volumes of the driver a CSINode says that a node can have.
func (v *virtual) limit(node string, count int32) {
	v.t.Helper()
	n, err := v.kube.StorageV1().CSINodes().Get(v.t.Context(), node, metav1.GetOptions{})
	if err == nil {
		n.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: &count}
		_, err = v.kube.StorageV1().CSINodes().Update(v.t.Context(), n, metav1.UpdateOptions{})
	}
	if err != nil {
		v.t.Fatal(err)
	}
}

// inFullNode calls f with a hub that has attached volumes 0 and 1 to node n, which can have two, and with four that
// wait. The fallback waits for hours. The driver can be cut off, and stop ends the hub.
func inFullNode(t *testing.T, f func(v *virtual, vas []testbed.VolumeAttachment, driver *endpoint, stop func())) {
	t.Helper()
	inVirtualTime(t, func(v *virtual) {
		driver := v.endpoint()
		v.driver.Retry.Initial, v.driver.Retry.Max = 5*time.Hour, 5*time.Hour
		v.driver.StuckAfter = 24 * time.Hour
		v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(2)})
		v.register("n", "id-n")
		stop := v.start()
		vas := v.crowd(6)
		v.wantAttached(vas, 0, 1)
		if got := v.published(); got != 3 {
			t.Fatalf("%d calls, want two that succeed and one that finds that the node is full", got)
		}
		f(v, vas, driver, stop)
	})
}

func TestDetachLetsTheOldestAttachGoToAFullNode(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ *endpoint, _ func()) {
		for i, va := range []testbed.VolumeAttachment{vas[1], vas[0], vas[2]} {
			v.delete(va)
			v.pass(time.Second)
			if got, want := v.published(), 4+i; got != want {
				t.Errorf("%d calls after %d detaches, want %d", got, i+1, want)
			}
		}
		v.wantAttached(vas, 3, 4)
	})
}

func TestFullNodeIsShown(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ *endpoint, _ func()) {
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
			inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ *endpoint, _ func()) {
				v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(5)})
				v.pass(time.Minute)
				v.wantAttached(vas, 0, 1)
				change(v)
				v.pass(time.Minute)
				if got := len(v.attachedOf(vas)); got < 5 {
					t.Errorf("%d are attached, want five", got)
				}
				if got := v.published(); got > 7 {
					t.Errorf("%d calls, want the four that may go and no other", got)
				}
			})
		})
	}
}

func TestFallbackTriesOneAttachAtATime(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(1)})
		v.register("n", "id-n")
		v.start()
		vas := v.crowd(4)
		v.pass(time.Hour)
		if got := v.published(); got > 80 {
			t.Errorf("%d calls in an hour, want one a minute", got)
		}
		for i, va := range vas[1:] {
			if tries := v.calls(fakecsi.ControllerPublishVolume, va.PersistentVolume, "id-n"); tries < 20 {
				t.Errorf("%s was tried %d times, want its turn each time", vas[i+1].Name, tries)
			}
		}
		v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(0)})
		before := v.published()
		v.pass(time.Minute)
		v.wantAttached(vas, 0, 1, 2, 3)
		if got := v.published() - before; got != 3 {
			t.Errorf("%d calls, want that each success lets the next go", got)
		}
	})
}

// A volume that the driver refuses for reasons of its own must not take the places of others.
func TestRefusedVolumeDoesNotBlockOthersOnItsNode(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Volume: "v00", Code: codes.ResourceExhausted}}})
		v.register("n", "id-n")
		v.start()
		vas := v.crowd(6)
		v.pass(10 * time.Minute)
		v.wantAttached(vas, 1, 2, 3, 4, 5)
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(10 * time.Minute)
		v.wantAttached(vas, 0, 1, 2, 3, 4, 5)
	})
}

func TestFailedAttachPassesItsPlaceOn(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ *endpoint, _ func()) {
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Volume: "v02", Code: codes.Internal, Count: 1}}})
		v.delete(vas[0])
		v.pass(time.Minute)
		v.wantAttached(vas, 1, 3)
		v.delete(vas[1])
		v.pass(time.Minute)
		v.wantAttached(vas, 3, 4) // the backoff of v02 lasts
	})
}

func TestAttachThatIsDeletedInTheLineCostsNoPlace(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ *endpoint, _ func()) {
		v.delete(vas[3]) // was never called
		v.pass(time.Second)
		if got := v.published(); got != 3 || v.get(vas[3].Name) != nil || v.status().WaitingForCapacity != 3 {
			t.Errorf("%d calls, %d wait: want no call, and the VolumeAttachment gone", got, v.status().WaitingForCapacity)
		}
		v.delete(vas[2]) // was refused: it may be attached
		v.pass(time.Second)
		if v.get(vas[2].Name) != nil || v.calls(fakecsi.ControllerUnpublishVolume, "v02", "id-n") != 1 {
			t.Error("the attach that was refused is not detached at once")
		}
		v.delete(vas[0])
		v.pass(time.Second)
		v.wantAttached(vas, 1, 5) // its detach let 4 go, which was refused
	})
}

func TestDriverThatIsAwayKeepsTheLine(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, driver *endpoint, _ func()) {
		driver.cut()
		v.delete(vas[0])
		v.pass(time.Minute)
		driver.mend()
		v.pass(5 * time.Minute)
		v.wantAttached(vas, 1, 3)
		if got := v.published(); got != 4 {
			t.Errorf("%d calls, want no other attach to be tried when the driver is back", got)
		}
	})
}

func TestNextTermFindsOutAnewThatANodeIsFull(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ *endpoint, stop func()) {
		stop()
		v.start()
		v.pass(time.Minute)
		if got, waiting := v.published(), v.status().WaitingForCapacity; got > 7 || waiting != 4 {
			t.Errorf("%d calls, %d wait, want at most one call for each that waits", got, waiting)
		}
		v.delete(vas[0])
		v.pass(time.Minute)
		if got := v.attachedOf(vas); len(got) != 2 {
			t.Errorf("%v are attached, want one that takes the place", got)
		}
	})
}

// This process sees nothing but the end of the VolumeAttachment.
func TestDetachOfAnotherProcessLetsAnAttachGo(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, driver *endpoint, stop func()) {
		stop() // the next hub has not worked on vas[0]
		v.start()
		v.pass(time.Minute)
		before := v.published()
		driver.cut()
		v.pass(time.Second)
		v.delete(vas[0])
		if _, err := v.backend.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: "v00", NodeId: "id-n"}); err != nil {
			t.Fatal(err)
		}
		object := v.get(vas[0].Name)
		object.Status.Attached = false
		if _, err := v.kube.StorageV1().VolumeAttachments().UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.stripFinalizers(vas[0].Name)
		v.pass(time.Second)
		driver.mend()
		v.pass(5 * time.Minute)
		if got := v.attachedOf(vas); len(got) != 2 {
			t.Errorf("%v are attached, want one that takes the place", got)
		}
		if got := v.published() - before; got != 1 {
			t.Errorf("%d calls, want one", got)
		}
	})
}

// The write of the status fails after the call: the volume is attached, and needs no other place.
func TestPublishedVolumeDoesNotWaitForAPlace(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(1)})
		v.register("n", "id-n")
		v.start()
		var refuses atomic.Bool
		refuses.Store(true)
		v.api.Intercept(func(r fakekube.Request) int {
			if refuses.Load() && r == (fakekube.Request{Verb: "patch", Resource: "volumeattachments/status", Name: "v00-n"}) {
				return http.StatusServiceUnavailable
			}
			return 0
		})
		vas := v.crowd(2)
		v.pass(time.Minute)
		if got := v.status().FullNodes; len(got) != 1 || !slices.Equal(got[0].Line, []string{"v01-n"}) {
			t.Errorf("%+v, want v01 alone to wait for a place", got)
		}
		refuses.Store(false)
		v.pass(20 * time.Second)
		v.wantAttached(vas, 0)
	})
}

// The process ended after the publish, before it wrote the status. Its VolumeAttachment waited in the line of the full node for
// a place that it had: 40 minutes with fifty others.
func TestVolumeThatHasItsPlaceOnAFullNodeIsAttachedAtOnce(t *testing.T) {
	for name, change := range map[string]func(va *storagev1.VolumeAttachment){
		"without an error": func(*storagev1.VolumeAttachment) {},
		"after a timeout": func(va *storagev1.VolumeAttachment) {
			va.Status.AttachError = &storagev1.VolumeError{Message: "rpc error: code = DeadlineExceeded desc = no answer"}
		},
		"attached, with its finalizer stripped": func(va *storagev1.VolumeAttachment) { va.Finalizers, va.Status.Attached = nil, true },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Drift.Interval = 0
				v.register("n", "id-n")
				v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(1)})
				v.crowd(50)
				v.volume("zz")
				va := v.attachment("zz", "n").Build()
				va.Finalizers = []string{attach.Finalizer(virtualDriver)}
				va.Annotations = map[string]string{attach.AnnotationNodeID: "id-n", attach.AnnotationVolumeHandle: "zz"}
				change(va)
				if _, err := v.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				v.attachByHand("zz", "id-n")
				v.start()
				v.pass(10 * time.Second)
				if got := v.get(va.Name); !got.Status.Attached || len(got.Finalizers) == 0 {
					t.Errorf("finalizers %v, status %+v, want it attached at once: it needs no place", got.Finalizers, got.Status)
				}
			})
		})
	}
}

// After a restart nobody knows which nodes are full. The errors in the statuses say for whom there was no place.
func TestAttachesThatFoundAFullNodeDoNotAllTryAgainAfterARestart(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval, v.driver.Workers = 0, 2
		v.driver.Retry.Initial, v.driver.Retry.Max = 10*time.Second, 10*time.Second
		v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(1)})
		v.register("n", "id-n")
		stop := v.start()
		v.crowd(30)
		v.pass(30 * time.Minute) // each has been refused
		stop()
		before := v.published()
		v.start()
		v.pass(5 * time.Second)
		if n := v.published() - before; n < 1 || n > v.driver.Workers {
			t.Errorf("%d calls after the restart, want at most one for each of %d workers until it is known that the node is full", n, v.driver.Workers)
		}
	})
}
