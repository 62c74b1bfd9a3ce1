package csiclient

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// asking are knobs of a driver that answers questions about one volume.
func asking() fakecsi.Knobs {
	return fakecsi.Knobs{Capabilities: append(fakecsi.DefaultCapabilities(), fakecsi.GetVolume, fakecsi.GetVolumeHealth)}
}

func TestNodesOfAVolumeAreThoseThatTheDriverReports(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, asking())
	d.turn(t, fakecsi.Knobs{
		GainVolumes:     []string{"nowhere"},
		GainAttachments: []fakecsi.VolumeNode{{Volume: "v", Node: "n2"}, {Volume: "v", Node: "n1"}, {Volume: "w", Node: "n3"}},
	})
	var mu sync.Mutex
	counted := map[string]int{}
	s, err := Connect(ctx, at(d.endpoint), func(method string, code codes.Code, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		counted[method+" "+code.String()]++
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for volume, want := range map[string]PublishedNodes{"v": {IDs: []string{"n1", "n2"}}, "nowhere": {}} {
		if got, err := s.VolumeNodes(ctx, volume); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", volume, got, err, want)
		}
	}
	if _, err := s.VolumeNodes(ctx, "gone"); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "volume gone does not exist") {
		t.Errorf("a volume that the driver does not know: got %v", err)
	}
	mu.Lock()
	if method := "/csi.v1.Controller/ControllerGetVolume "; counted[method+"OK"] != 2 || counted[method+"NotFound"] != 1 {
		t.Errorf("the calls were counted as %v", counted)
	}
	mu.Unlock()
	s.Close()
	if _, err := s.VolumeNodes(ctx, "v"); status.Code(err) != codes.Unavailable {
		t.Errorf("after Close: got %v", err)
	}
}

// volumeAnswer is a ControllerGetVolumeResponse with that volume_id.
func volumeAnswer(handle string, more ...[]byte) []byte {
	return join(append([][]byte{field(1, field(2, []byte(handle)...)...)}, more...)...)
}

func TestOddAnswersAboutAVolumeAreTakenForWhatTheySayOrRefused(t *testing.T) {
	nodes := func(ids ...string) []byte {
		var list []byte
		for _, id := range ids {
			list = append(list, field(1, []byte(id)...)...)
		}
		return field(2, list...)
	}
	for _, tc := range []struct {
		name   string
		answer []byte
		want   PublishedNodes
		err    string // empty: none
	}{
		{"without a status", volumeAnswer("v"), PublishedNodes{Unknown: true}, ""},
		{"a status without nodes", volumeAnswer("v", nodes()), PublishedNodes{}, ""},
		{"a node twice, and in two statuses", volumeAnswer("v", nodes("n1", "n1"), nodes("n2", "n1")), PublishedNodes{IDs: []string{"n1", "n2"}}, ""},
		{"of another volume", volumeAnswer("w", nodes("n1")), PublishedNodes{}, "without the volume_id of the request"},
		{"empty", nil, PublishedNodes{}, "without the volume_id of the request"},
		{"no message", []byte{0x0a, 0x7f}, PublishedNodes{}, "unmarshal"},
		{"a message within that is none", volumeAnswer("v", field(2, 0x0a)), PublishedNodes{}, "unmarshal"},
		{"above the limit", volumeAnswer("v", bytes.Repeat(nodes("n"), maxAnswer/4)), PublishedNodes{}, "the answer of driver " + driverName + " to ControllerGetVolume is too large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := testContext(t)
			s := connect(ctx, t, rawServer(t, map[string][]byte{"ControllerGetVolume": tc.answer}))
			got, err := s.VolumeNodes(ctx, "v")
			if !cmp.Equal(got, tc.want) || (err == nil) != (tc.err == "") {
				t.Fatalf("got %+v, %v, want %+v", got, err, tc.want)
			}
			if err != nil && (status.Code(err) != codes.Internal || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			if err := s.Probe(ctx); err != nil {
				t.Errorf("the session does not go on after that: %v", err)
			}
		})
	}
}

func TestQuestionAboutAVolumeEndsWithItsContext(t *testing.T) {
	d := startDriver(t, asking())
	d.turn(t, fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "v"}}})
	s := connect(testContext(t), t, d.endpoint)
	ctx, cancel := context.WithCancel(testContext(t))
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := s.VolumeNodes(ctx, "v"); status.Code(err) != codes.Canceled {
		t.Errorf("nodes: got %v", err)
	}
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
