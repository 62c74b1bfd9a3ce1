package tests

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// The storage has lost a volume, the repair fails, and then the volume is there again: it was published at every retry.
func TestRepairEndsWhenTheDriverListsTheVolumeAgain(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.turn(fakecsi.Knobs{
			LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}},
			Fail:            []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}},
		})
		v.pass(5 * time.Minute)
		if n := v.calls(fakecsi.ControllerPublishVolume, "v", "id-n"); n < 2 {
			t.Fatalf("%d calls, want that it is tried to attach the volume again", n)
		}
		v.turn(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: "v", Node: "id-n"}}})
		v.pass(5 * time.Minute)
		calls := v.calls(fakecsi.ControllerPublishVolume, "v", "id-n")
		v.pass(time.Hour)
		if more := v.calls(fakecsi.ControllerPublishVolume, "v", "id-n") - calls; more > 0 {
			t.Errorf("%d calls for a volume that the driver lists where it should be", more)
		}
		if got := v.get(va.Name); !got.Status.Attached || got.Status.AttachError != nil {
			t.Errorf("%+v, want it attached without an error", got.Status)
		}
	})
}

// Repairs that hang had half of the workers, all that attaches may have.
func TestRepairsThatHangDoNotHoldUpAttaches(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.turn(fakecsi.AttachLatency(fakecsi.Latency{Base: 2 * time.Second})) // as in a cloud: no workers are lent
		v.start()
		v.crowd(10)
		v.pass(time.Minute)
		var lose []fakecsi.VolumeNode
		var hang []fakecsi.Hang
		for i := range 10 {
			name := fmt.Sprintf("v%02d", i)
			lose = append(lose, fakecsi.VolumeNode{Volume: name})
			hang = append(hang, fakecsi.Hang{Method: fakecsi.ControllerPublishVolume, Volume: name})
		}
		v.turn(fakecsi.Knobs{LoseAttachments: lose, Hang: hang})
		v.pass(80 * time.Second) // two listings, and the repairs begin
		if n, want := len(v.backend.Books().Running), v.driver.Workers/4; n != want {
			t.Fatalf("%d calls hang, want a quarter of the workers: %d", n, want)
		}
		v.volume("w")
		v.create(v.attachment("w", "n"))
		v.pass(10 * time.Second)
		if !v.get("w-n").Status.Attached {
			t.Errorf("a new attach has not ended after 10s, with %d of %d workers idle", v.driver.Workers-len(v.backend.Books().Running), v.driver.Workers)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true})
	})
}
