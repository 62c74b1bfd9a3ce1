package tests

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// A driver refuses one volume for ever, for example because of a quota. Others must not wait until that volume is
// tried again.
func TestVolumeThatIsAlwaysRefusedDoesNotDelayANewOne(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Volume: "bad", Code: codes.ResourceExhausted}}})
		v.start()
		v.volume("bad")
		v.create(v.attachment("bad", "n"))
		v.pass(20 * time.Minute)
		for i := range 5 {
			name := fmt.Sprint("good", i)
			v.volume(name)
			v.create(v.attachment(name, "n"))
			v.pass(2 * v.driver.Retry.Initial)
			if !v.get(name + "-n").Status.Attached {
				t.Errorf("%s waits although it was never refused", name)
			}
			v.pass(7 * time.Minute)
		}
	})
}

// The driver throttles once: the other attaches must not go one after the other from then on.
func TestRefusalThatPassesDoesNotSlowTheNodeDown(t *testing.T) {
	const attaches, takes = 20, 10 * time.Second
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.turn(fakecsi.AttachLatency(fakecsi.Latency{Base: takes}))
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.ResourceExhausted, Count: 1}}})
		v.start()
		var vas []testbed.VolumeAttachment
		for i := range attaches {
			name := fmt.Sprintf("v%02d", i)
			v.volume(name)
			vas = append(vas, v.attachment(name, "n"))
			v.create(vas[i])
			if i == 0 {
				v.pass(takes + time.Second)
			}
		}
		v.pass(6 * takes) // 1, 2, 4, 8 and 5 go side by side
		if got := len(v.attachedOf(vas)); got != attaches {
			t.Errorf("%d are attached, want %d", got, attaches)
		}
	})
}

// The places become free without a detach that the hub sees: each success lets two more go, so the driver refuses at
// most one more than it attaches. One more goes if the wait of an attach ends in the meantime.
func TestTriesAreRefusedHardlyMoreOftenThanTheySucceed(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(1)})
		v.register("n", "id-n")
		v.start()
		vas := v.crowd(60)
		v.pass(10 * time.Minute)
		v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(11)})
		before := v.published()
		v.limit("n", 11)
		v.pass(500 * time.Millisecond)
		if calls, got := v.published()-before, len(v.attachedOf(vas))-1; got != 10 || calls > 2*got+2 {
			t.Errorf("%d calls, of which %d succeeded, want ten that succeed and at most twelve that do not", calls, got)
		}
	})
}

// A read fails at a takeover: the volume must not get into the line of its node, in which it would wait for ever.
func TestVolumeThatHasItsPlaceKeepsItWhenAReadFails(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval = 0
		v.leased()
		v.register("n", "id-n")
		v.turn(fakecsi.Knobs{MaxVolumesPerNode: new(1)})
		v.crowd(50)
		v.volume("placed")
		va := v.attachment("placed", "n").Build()
		va.Finalizers = []string{attach.Finalizer(virtualDriver)}
		va.Annotations = map[string]string{attach.AnnotationNodeID: "id-n", attach.AnnotationVolumeHandle: "placed"}
		if _, err := v.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.attachByHand("placed", "id-n")
		began := time.Now()
		v.api.Intercept(func(r fakekube.Request) int {
			if time.Since(began) < 8*time.Second && r.Verb == "get" && r.Name == va.Name {
				return http.StatusServiceUnavailable
			}
			return 0
		})
		v.start()
		v.pass(time.Minute)
		if !v.get(va.Name).Status.Attached {
			t.Error("not attached")
		}
	})
}
