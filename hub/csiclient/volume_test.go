package csiclient

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// asking are knobs of a driver that answers questions about one volume.
func asking() fakecsi.Knobs {
	return fakecsi.Knobs{Capabilities: append(fakecsi.DefaultCapabilities(), fakecsi.GetVolumeHealth)}
}

func TestQuestionAboutAVolumeEndsWithItsContext(t *testing.T) {
	d := startDriver(t, asking())
	d.turn(t, fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "v"}}})
	s := connect(testContext(t), t, d.endpoint)
	ctx, cancel := context.WithCancel(testContext(t))
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := s.VolumeHealth(ctx, "v"); status.Code(err) != codes.Canceled {
		t.Errorf("health: got %v", err)
	}
}

func TestHealthOfAVolumeIsWhatTheDriverReports(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, asking())
	many := slices.Repeat([]fakecsi.Health{{Status: "DATA_LOSS", Reason: "Broken"}}, 3*maxHealth)
	d.turn(t, fakecsi.Knobs{
		GainVolumes: []string{"fine", "bad", "worse"},
		VolumeHealth: map[string][]fakecsi.Health{
			"bad": {{Status: "DEGRADED", Reason: "Rebuild\x1b[2J", Message: "one\x00\rreplica left"}, {Status: "UNKNOWN_VOLUME_HEALTH_TYPE", Reason: "Other"},
				{Status: "INACCESSIBLE", Reason: "PoolOffline"}},
			"worse": many,
		},
	})
	s := connect(ctx, t, d.endpoint)
	for volume, want := range map[string][]VolumeHealth{
		"fine": nil,
		"bad":  {{"DEGRADED", "Rebuild?[2J", "one??replica left"}, {"INACCESSIBLE", "PoolOffline", ""}},
	} {
		if got, err := s.VolumeHealth(ctx, volume); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", volume, got, err, want)
		}
	}
	if got, err := s.VolumeHealth(ctx, "worse"); err != nil || len(got) != maxHealth {
		t.Errorf("got %d problems, %v, want %d", len(got), err, maxHealth)
	}
	if _, err := s.VolumeHealth(ctx, "gone"); status.Code(err) != codes.NotFound {
		t.Errorf("a volume that the driver does not know: got %v", err)
	}
}

func TestHealthOfALaterSpecOrOfAnotherVolumeIsNotTaken(t *testing.T) {
	later := field(2, join(number(1, 99), field(2, []byte("MultipathLoss")...))...)
	degraded := field(2, join(number(1, 1), field(2, []byte("Rebuild")...))...)
	health := func(handle string) []byte {
		return field(1, join(field(1, []byte(handle)...), later, degraded)...)
	}
	ctx := testContext(t)
	s := connect(ctx, t, rawServer(t, map[string][]byte{"ControllerGetVolumeHealth": health("v")}))
	if got, err := s.VolumeHealth(ctx, "v"); err != nil || !cmp.Equal(got, []VolumeHealth{{Status: "DEGRADED", Reason: "Rebuild"}}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := s.VolumeHealth(ctx, "w"); got != nil || !errors.Is(err, errOtherVolume) {
		t.Errorf("health of another volume: got %+v, %v", got, err)
	}
}
