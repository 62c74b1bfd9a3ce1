package fakecsi

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestFaultsHitTheCallsThatTheyMatch(t *testing.T) {
	tests := []struct {
		name     string
		knobs    Knobs
		volumes  []string // published one after the other to n1
		want     []codes.Code
		attached []string
	}{
		{
			name:    "as many as they count",
			knobs:   Knobs{Fail: []Fault{{Method: ControllerPublishVolume, Code: codes.Unavailable, Count: 2}}},
			volumes: []string{"a", "b", "c"}, want: []codes.Code{codes.Unavailable, codes.Unavailable, codes.OK}, attached: []string{"c"},
		},
		{
			name:    "all without a count",
			knobs:   Knobs{Fail: []Fault{{Code: codes.Internal}}},
			volumes: []string{"a", "b"}, want: []codes.Code{codes.Internal, codes.Internal},
		},
		{
			name:    "only of their volume",
			knobs:   Knobs{Fail: []Fault{{Volume: "b", Code: codes.Aborted}}},
			volumes: []string{"a", "b", "c"}, want: []codes.Code{codes.OK, codes.Aborted, codes.OK}, attached: []string{"a", "c"},
		},
		{
			name:    "not those of another method or node",
			knobs:   Knobs{Fail: []Fault{{Method: ControllerUnpublishVolume, Code: codes.Aborted}, {Node: "n2", Code: codes.Aborted}}},
			volumes: []string{"a"}, want: []codes.Code{codes.OK}, attached: []string{"a"},
		},
		{
			name: "one after the other",
			knobs: Knobs{Fail: []Fault{
				{Method: ControllerPublishVolume, Code: codes.Unavailable, Count: 1},
				{Method: ControllerPublishVolume, Code: codes.Internal, Count: 1},
			}},
			volumes: []string{"a", "a", "a"}, want: []codes.Code{codes.Unavailable, codes.Internal, codes.OK}, attached: []string{"a"},
		},
		{
			name:    "after the effect, if they say so",
			knobs:   Knobs{Fail: []Fault{{Code: codes.DeadlineExceeded, Count: 1, AfterEffect: true}}},
			volumes: []string{"a"}, want: []codes.Code{codes.DeadlineExceeded}, attached: []string{"a"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBackend(t, Options{})
			turn(t, b, tt.knobs)
			var got []codes.Code
			for _, v := range tt.volumes {
				got = append(got, publish(t.Context(), b, v, "n1", rwo))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
			want := map[string][]string{}
			for _, v := range tt.attached {
				want[v] = []string{"n1"}
			}
			if diff := cmp.Diff(want, attached(b)); diff != "" {
				t.Errorf("attached (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClearedFaultsHitNobody(t *testing.T) {
	b := newBackend(t, Options{})
	turn(t, b, Knobs{Fail: []Fault{{Code: codes.Internal}}})
	turn(t, b, Knobs{ClearFaults: true, Fail: []Fault{{Code: codes.Aborted, Count: 1}}})
	if got := publish(t.Context(), b, "v", "n1", rwo); got != codes.Aborted {
		t.Errorf("the first call got %s, want the fault that was added", got)
	}
	if got := publish(t.Context(), b, "v", "n1", rwo); got != codes.OK {
		t.Errorf("the second call got %s", got)
	}
}

func TestHangingCalls(t *testing.T) {
	publishHangs := Hang{Method: ControllerPublishVolume}
	late := Hang{Method: ControllerPublishVolume, AfterEffect: true}
	tests := []struct {
		name     string
		knobs    Knobs
		release  *Knobs // a second after the call began; the caller leaves after two
		code     codes.Code
		attached bool // in the end
	}{
		{name: "end with their caller and without effect", knobs: Knobs{Hang: []Hang{publishHangs}}, code: codes.DeadlineExceeded},
		{name: "go on when released", knobs: Knobs{Hang: []Hang{publishHangs}}, release: &Knobs{Release: []Hang{publishHangs}}, attached: true},
		{name: "go on when all are released", knobs: Knobs{Hang: []Hang{{}}}, release: &Knobs{ReleaseAll: true}, attached: true},
		{name: "stay when another is released", knobs: Knobs{Hang: []Hang{publishHangs}}, release: &Knobs{Release: []Hang{late}}, code: codes.DeadlineExceeded},
		{name: "have had their effect if they hang late", knobs: Knobs{Hang: []Hang{late}}, code: codes.DeadlineExceeded, attached: true},
		{name: "of another node do not matter", knobs: Knobs{Hang: []Hang{{Node: "n2"}}}, attached: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBackend(t, Options{})
				turn(t, b, tt.knobs)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				answer := make(chan codes.Code)
				go func() { answer <- publish(ctx, b, "v", "n1", rwo) }()
				time.Sleep(time.Second)
				if tt.release != nil {
					turn(t, b, *tt.release)
				}
				if got := <-answer; got != tt.code {
					t.Errorf("got %s, want %s", got, tt.code)
				}
				if got := b.Books().IsAttached("v", "n1"); got != tt.attached {
					t.Errorf("attached is %v", got)
				}
			})
		})
	}
}

func TestAbandonedCallsTakeTheirCourseIfToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, Options{})
		turn(t, b, Knobs{FinishAbandoned: new(true), Latency: map[Method]Latency{"": {Base: 3 * time.Second}}})
		ctx, cancel := context.WithCancel(t.Context())
		go publish(ctx, b, "v", "n1", rwo)
		synctest.Wait()
		cancel()
		time.Sleep(2 * time.Second)
		if bk := b.Books(); bk.IsAttached("v", "n1") || bk.InFlight.Now != 1 {
			t.Errorf("after two seconds: attached %v, in flight %d", bk.Attached, bk.InFlight.Now)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		bk := b.Books()
		if !bk.IsAttached("v", "n1") || bk.InFlight.Now != 0 {
			t.Errorf("after three seconds: attached %v, in flight %d", bk.Attached, bk.InFlight.Now)
		}
		if c := bk.Calls[0]; !c.Abandoned || !c.Changed {
			t.Errorf("the call is booked as %+v", c)
		}
	})
}

func TestLatencyOfAMethodGoesBeforeThatOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, Options{})
		turn(t, b, Knobs{Latency: map[Method]Latency{"": {Base: time.Second}, ControllerPublishVolume: {Base: time.Minute, Jitter: time.Second}}})
		turn(t, b, Knobs{Latency: map[Method]Latency{Probe: {}}})
		took := func(call func()) time.Duration {
			begin := time.Now()
			call()
			return time.Since(begin)
		}
		if d := took(func() { unpublish(t.Context(), b, "v", "n1") }); d != time.Second {
			t.Errorf("unpublish took %s", d)
		}
		if d := took(func() { publish(t.Context(), b, "v", "n1", rwo) }); d < time.Minute || d >= time.Minute+time.Second {
			t.Errorf("publish took %s", d)
		}
		if d := took(func() { _, _ = b.Probe(t.Context(), &csi.ProbeRequest{}) }); d != 0 {
			t.Errorf("probe took %s", d)
		}
	})
}

func TestIdentityFollowsTheKnobs(t *testing.T) {
	b := newBackend(t, Options{Name: "old.example.com", VendorVersion: "1.2.3"})
	turn(t, b, Knobs{Name: "new.example.com", Capabilities: []Capability{ControllerService, ListVolumesRPC}, NotReady: new(true)})
	probe, err := b.Probe(t.Context(), &csi.ProbeRequest{})
	if err != nil || probe.GetReady().GetValue() {
		t.Errorf("probe: got %v, %v", probe, err)
	}
	info, err := b.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "new.example.com" || info.GetVendorVersion() != "1.2.3" {
		t.Errorf("info: got %v, %v", info, err)
	}
	caps, err := b.ControllerGetCapabilities(t.Context(), &csi.ControllerGetCapabilitiesRequest{})
	if err != nil || len(caps.GetCapabilities()) != 1 ||
		caps.GetCapabilities()[0].GetRpc().GetType() != csi.ControllerServiceCapability_RPC_LIST_VOLUMES {
		t.Errorf("capabilities: got %v, %v", caps, err)
	}

	turn(t, b, Knobs{Capabilities: []Capability{}, NotReady: new(false), Fail: []Fault{{Method: Probe, Code: codes.FailedPrecondition, Count: 1}}})
	if _, err := b.Probe(t.Context(), &csi.ProbeRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("failing probe: got %v", err)
	}
	if probe, err := b.Probe(t.Context(), &csi.ProbeRequest{}); err != nil || !probe.GetReady().GetValue() {
		t.Errorf("probe: got %v, %v", probe, err)
	}
	plugin, err := b.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
	if err != nil || len(plugin.GetCapabilities()) != 0 {
		t.Errorf("plugin capabilities: got %v, %v", plugin, err)
	}
	if _, err := b.ControllerGetCapabilities(t.Context(), &csi.ControllerGetCapabilitiesRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("capabilities without a controller service: got %v", err)
	}
}

func TestPublishContextCanBeChosen(t *testing.T) {
	b := newBackend(t, Options{})
	get := func() map[string]string {
		resp, err := b.ControllerPublishVolume(t.Context(), publishRequest("v", "n1", rwo))
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetPublishContext()
	}
	if diff := cmp.Diff(map[string]string{"devicePath": "/dev/disk/by-id/v"}, get()); diff != "" {
		t.Error(diff)
	}
	turn(t, b, Knobs{PublishContext: map[string]string{"lun": "7"}})
	if diff := cmp.Diff(map[string]string{"lun": "7"}, get()); diff != "" {
		t.Error(diff)
	}
	turn(t, b, Knobs{PublishContext: map[string]string{}})
	if got := get(); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
}

func TestAttachmentsChangeBehindTheBack(t *testing.T) {
	b := newBackend(t, Options{})
	for _, n := range []string{"n1", "n2"} {
		publish(t.Context(), b, "shared", n, rwx)
	}
	publish(t.Context(), b, "single", "n1", rwo)
	publish(t.Context(), b, "gone", "n1", rwo)
	turn(t, b, Knobs{
		LoseAttachments: []VolumeNode{{Volume: "shared", Node: "n1"}, {Volume: "single"}, {Volume: "unknown"}},
		LoseVolumes:     []string{"gone"},
		GainAttachments: []VolumeNode{{Volume: "shared", Node: "n3"}, {Volume: "new", Node: "n1"}},
		GainVolumes:     []string{"idle"},
	})
	want := map[string][]string{"shared": {"n2", "n3"}, "new": {"n1"}}
	if diff := cmp.Diff(want, attached(b)); diff != "" {
		t.Errorf("attached (-want +got):\n%s", diff)
	}
	if v := b.Books().Violations; len(v) != 0 {
		t.Errorf("violations: %v", v)
	}
	// A publish adopts what came into being behind its back.
	if got := publish(t.Context(), b, "new", "n1", rwo); got != codes.OK {
		t.Errorf("publish of what is attached already got %s", got)
	}
	if got := publish(t.Context(), b, "new", "n1", rwx); got != codes.AlreadyExists {
		t.Errorf("publish in another way got %s", got)
	}
	turn(t, b, Knobs{GainAttachments: []VolumeNode{{Volume: "new", Node: "n2"}}})
	if bk := b.Books(); len(bk.Violations) > 0 || len(bk.Attached["new"]) != 2 {
		t.Errorf("attached %v, violations: %v", bk.Attached, bk.Violations)
	}
}

func TestWrongKnobsChangeNothing(t *testing.T) {
	tests := []struct {
		knobs Knobs
		want  string
	}{
		{Knobs{Capabilities: []Capability{"FLY"}}, `unknown capability "FLY"`},
		{Knobs{Latency: map[Method]Latency{"Fly": {}}}, `unknown method "Fly"`},
		{Knobs{Fail: []Fault{{Method: "Fly", Code: codes.Internal}}}, `unknown method "Fly"`},
		{Knobs{Fail: []Fault{{Method: Probe}}}, "OK is no failure"},
		{Knobs{Hang: []Hang{{Method: "Fly"}}}, `unknown method "Fly"`},
	}
	for _, tt := range tests {
		b := newBackend(t, Options{Name: "old.example.com"})
		tt.knobs.Name = "new.example.com"
		err := b.Set(tt.knobs)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got error %v, want one with %q", tt.knobs, err, tt.want)
		}
		if got := b.Books().Driver; got != "old.example.com" {
			t.Errorf("%+v: the name was changed to %s", tt.knobs, got)
		}
	}
}

func TestKnobsAreReadFromJSON(t *testing.T) {
	got, err := ParseKnobs([]byte(`{"fail":[{"method":"Probe","code":"INTERNAL"}],"maxVolumesPerNode":1}`))
	if diff := cmp.Diff(Knobs{Fail: []Fault{{Method: Probe, Code: codes.Internal}}, MaxVolumesPerNode: new(1)}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for text, want := range map[string]string{
		`releaseAll`:                         "write an object with name, capabilities, latency, fail",
		`{"hangs":1}`:                        `unknown field "hangs": write an object with name`,
		`{"hang":[{"method":"Fly"}]}`:        `unknown method "Fly": choose from Probe, `,
		`{"fail":[{"code":"OK"}]}`:           "OK is no failure",
		`{"fail":[{"code":"SOMETIMES"}]}`:    "invalid code",
		`{"capabilities":["LIST_VOLUMES2"]}`: `unknown capability "LIST_VOLUMES2": choose from CONTROLLER_SERVICE, `,
	} {
		if _, err := ParseKnobs([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", text, err, want)
		}
	}
}

func TestListVolumesPages(t *testing.T) {
	b := newBackend(t, Options{})
	for _, v := range []string{"e", "c", "a", "d", "b"} {
		publish(t.Context(), b, v, "n1", rwo)
	}
	unpublish(t.Context(), b, "c", "n1")
	page := func(token string) ([]string, string) {
		t.Helper()
		resp, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range resp.GetEntries() {
			out = append(out, e.GetVolume().GetVolumeId()+"@"+strings.Join(e.GetStatus().GetPublishedNodeIds(), ","))
		}
		return out, resp.GetNextToken()
	}
	first, token := page("")
	// Neither a volume that goes nor one that comes disturbs the next page.
	turn(t, b, Knobs{LoseVolumes: []string{"b"}, GainVolumes: []string{"aa"}})
	second, token := page(token)
	third, end := page(token)
	got := slices.Concat(first, second, third)
	if diff := cmp.Diff([]string{"a@n1", "b@n1", "c@", "d@n1", "e@n1"}, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if end != "" {
		t.Errorf("after the last page there is %q", end)
	}
	if _, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "nonsense"}); status.Code(err) != codes.Aborted {
		t.Errorf("a wrong token got %v", err)
	}
	turn(t, b, Knobs{Capabilities: []Capability{ControllerService, ListVolumesRPC}})
	if first, _ := page(""); first[0] != "a@" {
		t.Errorf("nodes are told without %s: %v", ListVolumesPublishedNodes, first)
	}
}
