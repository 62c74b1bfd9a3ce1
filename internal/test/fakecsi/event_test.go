package fakecsi

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
)

// Whoever checks what a caller did at each moment needs every event in its order, and who the caller was.
func TestAnObserverIsToldEachCallEachChangeAndTheProcessOfTheCaller(t *testing.T) {
	var events []Event
	b, err := New(Options{Name: "d", Observe: func(e Event) { events = append(events, e) }})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "unix://" + shortDir(t) + "/s"
	startServer(t, b, endpoint)
	c := csi.NewControllerClient(dial(t, endpoint))
	ctx := testContext(t)
	publish := &csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "n", VolumeCapability: &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}}
	if _, err := c.ControllerPublishVolume(ctx, publish); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{}); err != nil { // not told
		t.Fatal(err)
	}
	if err := b.Set(Knobs{LoseAttachments: []VolumeNode{{"v", "n"}}, GainAttachments: []VolumeNode{{"v", "m"}}}); err != nil {
		t.Fatal(err)
	}
	peer := os.Getpid()
	if runtime.GOOS != "linux" {
		peer = 0
	}
	want := []Event{
		{Kind: CallBegan, Call: 1, Method: ControllerPublishVolume, Node: "n", Peer: peer},
		{Kind: Attached, Call: 1, Node: "n"},
		{Kind: CallEnded, Call: 1, Method: ControllerPublishVolume, Node: "n", Peer: peer},
		{Kind: Detached, Node: "n"},
		{Kind: Attached, Node: "m", Foreign: true},
	}
	if calls := b.Books().CallsOf(ControllerPublishVolume, "v"); len(calls) != 1 || calls[0].Peer != peer {
		t.Errorf("the books have %+v, want one call of process %d", calls, peer)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range events {
		if i < len(want) {
			want[i].Driver, want[i].Volume = "d", "v"
		}
		if e := &events[i]; e.Time.IsZero() || i > 0 && e.Time.Before(events[i-1].Time) || e.Method != "" && e.Deadline.IsZero() {
			t.Errorf("event %d has a wrong time: %+v", i, e)
		}
		events[i].Time, events[i].Deadline = time.Time{}, time.Time{}
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
}
