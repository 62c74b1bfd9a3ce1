package fakecsi

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestOneVolumeIsAnsweredAsItIsListed(t *testing.T) {
	b := newBackend(t, Options{})
	turn(t, b, Knobs{
		Capabilities:    append(DefaultCapabilities(), GetVolume, GetVolumeHealth),
		GainAttachments: []VolumeNode{{Volume: "v", Node: "n2"}, {Volume: "v", Node: "n1"}},
		VolumeHealth:    map[string][]Health{"v": {{Status: "DEGRADED", Reason: "Rebuild", Message: "m"}}},
	})
	get := func(volume string) (*csi.ControllerGetVolumeResponse, *csi.ControllerGetVolumeHealthResponse, codes.Code, codes.Code) {
		v, err := b.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: volume})
		h, herr := b.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: volume})
		return v, h, status.Code(err), status.Code(herr)
	}
	v, h, _, _ := get("v")
	if got := v.GetStatus().GetPublishedNodeIds(); v.GetVolume().GetVolumeId() != "v" || !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("the volume: got %v", v)
	}
	if got := h.GetVolumeHealth(); got.GetVolumeId() != "v" || len(got.GetHealthStatuses()) != 1 || got.GetHealthStatuses()[0].GetStatus() != csi.VolumeHealthErrorType_DEGRADED {
		t.Errorf("its health: got %v", got)
	}
	turn(t, b, Knobs{VolumeHealth: map[string][]Health{"v": {}}})
	if _, h, _, _ := get("v"); len(h.GetVolumeHealth().GetHealthStatuses()) > 0 {
		t.Errorf("a volume without a problem: got %v", h)
	}
	for volume, want := range map[string]codes.Code{"": codes.InvalidArgument, "gone": codes.NotFound} {
		if _, _, volumeCode, healthCode := get(volume); volumeCode != want || healthCode != want {
			t.Errorf("%q: got %s and %s, want %s", volume, volumeCode, healthCode, want)
		}
	}
	turn(t, b, Knobs{Capabilities: DefaultCapabilities()})
	if _, _, volumeCode, healthCode := get("v"); volumeCode != codes.Unimplemented || healthCode != codes.Unimplemented {
		t.Errorf("without the capabilities: got %s and %s", volumeCode, healthCode)
	}
}
