package tlsproxy

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const listMethod = "/csi.v1.Controller/ListVolumes"

// sized answers with a message of the size in the request.
func sized(stream grpc.ServerStream, req *csi.ControllerPublishVolumeRequest) error {
	return stream.SendMsg(&csi.ListVolumesResponse{NextToken: strings.Repeat("t", len(req.GetVolumeId())*1000)})
}

// kilobytes asks sized for an answer.
func kilobytes(n int) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{VolumeId: strings.Repeat("v", n)}
}

func TestLargePagesPass(t *testing.T) {
	s := newAnyScene(t, &anyDriver{answer: sized})
	conn := s.dial()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			var page csi.ListVolumesResponse
			if err := conn.Invoke(s.ctx, listMethod, kilobytes(16_000), &page); err != nil || len(page.GetNextToken()) != 16_000_000 {
				t.Errorf("got %d bytes, %v", len(page.GetNextToken()), err)
			}
		})
	}
	callers.Wait()
	if err := conn.Invoke(s.ctx, publishMethod, kilobytes(2000), &csi.ListVolumesResponse{}); err != nil {
		t.Errorf("an answer of 2 MB: %v", err)
	}
	large := &csi.ControllerUnpublishVolumeRequest{NodeId: strings.Repeat("n", 4_000_000)}
	if err := conn.Invoke(s.ctx, publishMethod, large, &emptypb.Empty{}); err != nil {
		t.Errorf("a request of 4 MB: %v", err)
	}
}

// Many pages at once must fit into the memory of a container beside a driver.
func TestPagesTakeNoMemoryOfTheProxy(t *testing.T) {
	c, d, _ := newPeers(t)
	c.call(1, listMethod)
	next[*http2.MetaHeadersFrame](d)
	frame := append([]byte{0, 0x40, 0, byte(http2.FrameData), 0, 0, 0, 0, 1}, make([]byte, maxFrame)...)
	page := maxPage / maxFrame // frames
	b := make([]byte, 64<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		for range page {
			if _, err := d.conn.Write(frame); err != nil {
				return
			}
		}
	}()
	for left := page * len(frame); left > 0; {
		n, err := c.conn.Read(b)
		c.do(err)
		left -= n
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > maxPage/4 {
		t.Errorf("a page of %d bytes allocated %d", maxPage, got)
	}
}

// What was sent already counts against the flow control of the connection: if the proxy did not
// return it, the connection would be stuck soon.
func TestCallsBeyondTheLimitsEndAndTheConnectionGoesOn(t *testing.T) {
	d := &anyDriver{answer: sized}
	s := newAnyScene(t, d)
	conn := s.dial()
	for range 3 {
		large := &csi.ControllerUnpublishVolumeRequest{NodeId: strings.Repeat("n", 5_000_000)}
		if err := conn.Invoke(s.ctx, publishMethod, large, &emptypb.Empty{}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a request of 5 MB: got %v", err)
		}
		if err := conn.Invoke(s.ctx, publishMethod, kilobytes(3000), &emptypb.Empty{}); err == nil {
			t.Error("an answer of 3 MB passed")
		}
		if err := conn.Invoke(s.ctx, listMethod, kilobytes(17_000), &emptypb.Empty{}); err == nil {
			t.Error("a page of 17 MB passed")
		}
		if err := conn.Invoke(s.ctx, "/csi.v1.Controller/DeleteVolume", large, &emptypb.Empty{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a refused call with 5 MB: got %v", err)
		}
	}
	if err := conn.Invoke(s.ctx, publishMethod, kilobytes(1), &csi.ListVolumesResponse{}); err != nil {
		t.Errorf("the next call got %v", err)
	}
	if d.complete != 7 {
		t.Errorf("the driver got %d whole requests, want 7", d.complete)
	}
	s.logged("the client has sent too much data")
	s.logged("Refused a call")
}

func TestClientLearnsTheLimitOfHeaders(t *testing.T) {
	d := &anyDriver{}
	s := newAnyScene(t, d)
	conn := s.dial()
	conn.Connect()
	if err := conn.Invoke(s.ctx, publishMethod, &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(s.ctx, "large", strings.Repeat("y", maxHeaders))
	if err := conn.Invoke(ctx, publishMethod, &emptypb.Empty{}, &emptypb.Empty{}); err == nil {
		t.Error("headers beyond the limit passed")
	}
	if got := len(d.methods()); got != 1 {
		t.Errorf("%d calls arrived, want 1", got)
	}
}
