package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
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
	for range 2 {
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

// Many pages at once must fit into the memory of a container beside a driver: the driver may send no more than the client
// takes and the window of a call.
func TestPageThatTheClientDoesNotReadStaysInTheDriver(t *testing.T) {
	d := &anyDriver{answer: sized}
	s := newAnyScene(t, d)
	raw, err := tls.Dial("tcp", s.address, &tls.Config{RootCAs: s.proxyCA.Pool(), ServerName: serverName, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{s.hubCA.Issue(certtest.Request{Names: []string{"hub"}}).TLS()}})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	defer context.AfterFunc(s.ctx, func() { raw.Close() })()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = raw.Write([]byte(http2.ClientPreface))
	do(err)
	const step, page = 100_000, 10_000_000
	framer := http2.NewFramer(raw, raw)
	do(framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	do(framer.WriteWindowUpdate(0, 1<<30))
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", listMethod}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		do(encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	do(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}))
	request, err := proto.Marshal(kilobytes(page / 1000))
	do(err)
	do(framer.WriteData(1, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)))
	granted, received := 0, 0
	for {
		if received == granted {
			do(framer.WriteWindowUpdate(1, step))
			granted += step
		}
		f, err := framer.ReadFrame()
		do(err)
		if data, ok := f.(*http2.DataFrame); ok {
			received += len(data.Data())
			if ahead := int(d.written.Load()) - received; ahead > granted-received+streamWindow+2*frameSize { // and what frames it in
				t.Fatalf("the driver has sent %d bytes more than the client has read, of which the client allows %d", ahead, granted-received)
			}
		}
		if f.Header().Type == http2.FrameHeaders && f.Header().Flags.Has(http2.FlagHeadersEndStream) {
			break
		}
		if settings, ok := f.(*http2.SettingsFrame); ok && !settings.IsAck() {
			do(framer.WriteSettingsAck())
		}
	}
	if received < page {
		t.Errorf("got %d bytes", received)
	}
}

func TestClientHasOneConnectionToTheDriverAndMoreCallsWait(t *testing.T) {
	const atOnce, all = 200, 500 // 200 is what the driver allows
	begun, proceed := make(chan struct{}, all), make(chan struct{})
	d := &anyDriver{answer: func(stream grpc.ServerStream, _ *csi.ControllerPublishVolumeRequest) error {
		begun <- struct{}{}
		<-proceed
		return stream.SendMsg(&emptypb.Empty{})
	}}
	s := newAnyScene(t, d)
	conn := s.dial()
	var callers sync.WaitGroup
	for range all {
		callers.Go(func() {
			if err := conn.Invoke(s.ctx, publishMethod, &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
				t.Error(err)
			}
		})
	}
	for range atOnce {
		<-begun
	}
	if len(begun) > 0 {
		t.Error("more calls than the driver allows")
	}
	close(proceed)
	callers.Wait()
	if got := d.connections.Load(); got != 1 {
		t.Errorf("%d connections to the driver, want 1", got)
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
		if err := conn.Invoke(s.ctx, publishMethod, large, &emptypb.Empty{}); status.Code(err) != codes.Internal {
			t.Errorf("a request of 5 MB: got %v", err)
		}
		if err := conn.Invoke(s.ctx, publishMethod, kilobytes(3000), &emptypb.Empty{}); status.Code(err) != codes.Internal {
			t.Errorf("an answer of 3 MB: got %v", err)
		}
		if err := conn.Invoke(s.ctx, listMethod, kilobytes(17_000), &emptypb.Empty{}); status.Code(err) != codes.Internal {
			t.Errorf("a page of 17 MB: got %v", err)
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
	s.logged("csi-attach-proxy forwards at most 4194304 bytes")
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
	if err := conn.Invoke(ctx, publishMethod, &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Internal {
		t.Errorf("headers beyond the limit: got %v", err)
	}
	if got := len(d.methods()); got != 1 {
		t.Errorf("%d calls arrived, want 1", got)
	}
}

func TestDriversHeadersBeyondTheLimitAreInternal(t *testing.T) {
	s := newAnyScene(t, &anyDriver{answer: func(stream grpc.ServerStream, req *csi.ControllerPublishVolumeRequest) error {
		if req.GetVolumeId() != "" {
			return status.Error(codes.ResourceExhausted, strings.Repeat("x", 2*maxAnswerHeaders))
		}
		return stream.SendMsg(&emptypb.Empty{})
	}})
	conn := s.dial()
	for range 2 {
		if err := conn.Invoke(s.ctx, publishMethod, kilobytes(1), &emptypb.Empty{}); status.Code(err) != codes.Internal {
			t.Errorf("got %.200v", err)
		}
		if err := conn.Invoke(s.ctx, publishMethod, &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
			t.Errorf("the next call got %v", err)
		}
	}
}
