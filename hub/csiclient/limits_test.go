package csiclient

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip" // the hub links it: a driver may compress its answers
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// All workers of a driver may get such answers at once.
func TestAnswerAboveItsLimitIsAnErrorThatNamesDriverAndCall(t *testing.T) {
	large := field(1, join(field(1, 'k'), field(2, make([]byte, maxAnswer)...))...)
	want := "the answer of driver " + driverName + " to "
	for _, method := range []string{"Probe", "GetPluginInfo", "GetPluginCapabilities"} {
		_, err := Connect(testContext(t), at(rawServer(t, map[string][]byte{method: large})), nil)
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), want+method+" is too large") {
			t.Errorf("%s: got %v", method, err)
		}
	}
	ctx := testContext(t)
	s := connect(ctx, t, rawServer(t, map[string][]byte{"ControllerPublishVolume": large, "ControllerUnpublishVolume": large}))
	if _, err := s.ControllerPublishVolume(ctx, publishRequest("v")); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), want+"ControllerPublishVolume is too large") {
		t.Errorf("publish: got %v", err)
	}
	if _, err := s.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: "v"}); status.Code(err) != codes.Internal {
		t.Errorf("unpublish: got %v", err)
	}
	if err := s.Probe(ctx); err != nil {
		t.Errorf("the session does not go on after that: %v", err)
	}
}

// The code ResourceExhausted of a driver means that a node is full. The hub must not take its own limit for that, nor
// the text of a driver for its own limit.
func TestErrorOfTheDriverThatReadsLikeALimitStaysAsItIs(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{})
	s := connect(ctx, t, d.endpoint)
	for _, text := range []string{
		"the node has volumes larger than max",
		"grpc: received message larger than max (4194400 vs. 4194304)", // its server about a request
	} {
		d.setKnobs(t, fakecsi.Knobs{ClearFaults: true, Fail: []fakecsi.Fault{{Code: codes.ResourceExhausted, Message: text}}})
		if _, err := s.ControllerPublishVolume(ctx, publishRequest("v")); status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != text {
			t.Errorf("got %v", err)
		}
	}
}

func TestAnswersBelowTheLimitsArriveWhole(t *testing.T) {
	ctx := testContext(t)
	longest := map[string]string{"k": strings.Repeat("x", maxAnswer-100)}
	d := startDriver(t, fakecsi.Knobs{PublishContext: longest})
	s := connect(ctx, t, d.endpoint)
	if resp, err := s.ControllerPublishVolume(ctx, publishRequest("v")); err != nil || !maps.Equal(resp.GetPublishContext(), longest) {
		t.Errorf("publish context: got %v", err)
	}
	text := strings.Repeat("\u00e9", 8<<10) // 16 KiB, and 48 KiB in a header
	d.setKnobs(t, fakecsi.Knobs{Fail: []fakecsi.Fault{{Code: codes.FailedPrecondition, Message: text}}})
	if _, err := s.ControllerPublishVolume(ctx, publishRequest("v")); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != text {
		t.Errorf("error text: got %.200v", err)
	}
}

// A gRPC server in Go knows the limit of its client, and sends no headers above it.
func TestErrorTextAboveTheLimitIsAnErrorThatSaysSo(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{})
	s := connect(ctx, t, d.endpoint)
	d.setKnobs(t, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.FailedPrecondition, Message: strings.Repeat("x", maxHeaders)}}})
	want := fmt.Sprintf("the answer of driver %s to ControllerPublishVolume failed, perhaps because its error text has more than %d bytes", driverName, maxHeaders)
	if _, err := s.ControllerPublishVolume(ctx, publishRequest("v")); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), want) {
		t.Errorf("got %.300v", err)
	}
	assertOpen(t, s)
	if err := s.Probe(ctx); err != nil {
		t.Errorf("the session does not go on after that: %v", err)
	}
}

// A compressed answer has a thousandth of the size that it takes in memory.
func TestCompressedAnswerIsLimitedByItsWholeSize(t *testing.T) {
	ctx := testContext(t)
	compressed := grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if err := grpc.SetSendCompressor(stream.Context(), gzip.Name); err != nil {
			return err
		}
		return handle(srv, stream)
	})
	answer, page := field(9, make([]byte, maxAnswer)...), field(9, make([]byte, maxPage)...)
	s := connect(ctx, t, rawServer(t, map[string][]byte{"ControllerPublishVolume": answer, "ListVolumes": page}, compressed))
	if _, err := s.ControllerPublishVolume(ctx, publishRequest("v")); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "is too large") {
		t.Errorf("got %v", err)
	}
	if _, _, err := s.ListVolumes(ctx, 0); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "is too large") {
		t.Errorf("list: got %v", err)
	}
}

// Decoded, an empty entry takes many times its size.
func TestPageOfEmptyEntriesTakesBoundedMemory(t *testing.T) {
	ctx := testContext(t)
	s := connect(ctx, t, rawServer(t, map[string][]byte{"ListVolumes": bytes.Repeat(field(1), (maxPage-10)/2)}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, _, err := s.ListVolumes(ctx, 0)
	runtime.ReadMemStats(&after)
	if err != nil || len(got) > 0 {
		t.Fatalf("got %d volumes, %v", len(got), err)
	}
	// Four such pages at a time and the hub itself stay within the memory limit of the Pod.
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("the page took %d MB", took>>20)
	}
}
