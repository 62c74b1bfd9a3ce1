package hub_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
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
