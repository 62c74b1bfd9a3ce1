package hubclient

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

func TestTheStepsOfAVolumeAttachmentComeThrough(t *testing.T) {
	begun := time.Date(2026, 3, 4, 3, 0, 0, 5e6, time.UTC)
	want := []status.Step{{Kind: status.StepCreated, Time: begun}, {Kind: status.StepWaited, What: "a worker of the driver", Time: begun, Until: begun.Add(time.Second)},
		{Kind: status.StepCalled, What: "ControllerPublishVolume", Time: begun.Add(time.Second), Error: "busy"}}
	h := hubOf(t, addressOf(t, waitingSource{attachment: status.Attachment{Name: "csi-1", Driver: "d", State: status.Waiting, Steps: want}}))
	got, err := h.Attachment(t.Context(), h.replicas[0].name, "csi-1")
	if err != nil || got == nil || !reflect.DeepEqual(got.Steps, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// healthServer is a replica whose driver reports the health of one volume.
func healthServer(t *testing.T) string {
	t.Helper()
	o := status.Options{Endpoint: "127.0.0.1:0", Source: source{}, Metrics: status.NewMetrics(), Volumes: volumeHealth{}}
	s, err := status.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Addr().String()
}

type volumeHealth struct{}

func (volumeHealth) VolumeHealth(_ context.Context, attachment string) (status.VolumeHealth, error) {
	switch attachment {
	case "csi-1":
		return status.VolumeHealth{Problems: []status.VolumeProblem{{Status: "DEGRADED", Reason: "Rebuild", Message: "a disk is missing"}}}, nil
	case "csi-2":
		return status.VolumeHealth{}, fmt.Errorf("the driver is not connected")
	}
	return status.VolumeHealth{}, status.ErrNoAttachment
}

func TestAReplicaIsAskedForTheHealthOfAVolume(t *testing.T) {
	h := hubOf(t, healthServer(t))
	replica := h.replicas[0].name
	got, err := h.VolumeHealth(t.Context(), replica, "csi-1")
	if err != nil || len(got.Problems) != 1 || got.Problems[0] != (status.VolumeProblem{Status: "DEGRADED", Reason: "Rebuild", Message: "a disk is missing"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, want := range map[string]string{"csi-2": "503 Service Unavailable: ask for the health of the volume: the driver is not connected", "csi-3": `404 Not Found: VolumeAttachment "csi-3" does not exist`, "": "400 Bad Request"} {
		if _, err := h.VolumeHealth(t.Context(), replica, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", name, err, want)
		}
	}
	if _, err := h.VolumeHealth(t.Context(), "none", "csi-1"); err == nil {
		t.Error("a replica that is not known has answered")
	}
}
