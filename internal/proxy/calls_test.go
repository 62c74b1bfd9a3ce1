package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// anyDriver answers every call of every service, also streams, and records what arrived.
type anyDriver struct {
	// answer is called for each call; it may be nil.
	answer func(grpc.ServerStream, *csi.ControllerPublishVolumeRequest) error

	connections, written atomic.Int64 // that were accepted; bytes sent on them

	mu       sync.Mutex
	arrived  []string // methods; guarded by mu
	complete int      // calls whose request arrived as a whole; guarded by mu
}

func (d *anyDriver) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	d.mu.Lock()
	d.arrived = append(d.arrived, method)
	d.mu.Unlock()
	var req csi.ControllerPublishVolumeRequest
	if err := stream.RecvMsg(&req); err != nil {
		return err
	}
	d.mu.Lock()
	d.complete++
	d.mu.Unlock()
	if d.answer != nil {
		return d.answer(stream, &req)
	}
	return stream.SendMsg(&emptypb.Empty{})
}

func (d *anyDriver) methods() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.arrived)
}

// newAnyScene is a scene with such a driver.
func newAnyScene(t *testing.T, d *anyDriver) *scene {
	t.Helper()
	socket := filepath.Join(shortDir(t), "any.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(d.handle), grpc.MaxRecvMsgSize(64<<20), grpc.MaxConcurrentStreams(200))
	go func() { _ = server.Serve(&countingListener{listener, d}) }()
	s := newScene(t, func(o *Options) { o.Target = socket })
	t.Cleanup(server.Stop) // before the proxy ends
	return s
}

// countingListener counts for a driver.
type countingListener struct {
	net.Listener
	driver *anyDriver
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.driver.connections.Add(1)
	}
	return countingConn{conn, l.driver}, err
}

type countingConn struct {
	net.Conn
	driver *anyDriver
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.driver.written.Add(int64(n))
	return n, err
}

// dial returns a connection of a client that knows no limits.
func (s *scene) dial() *grpc.ClientConn {
	s.t.Helper()
	own := s.hubCA.Issue(certtest.Request{Names: []string{"hub"}})
	conn, err := grpc.NewClient(s.address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: s.proxyCA.Pool(), ServerName: serverName, Certificates: []tls.Certificate{own.TLS()}})),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

const publishMethod = "/csi.v1.Controller/ControllerPublishVolume"

func TestOnlyCallsThatAttachingNeedsReachTheDriver(t *testing.T) {
	d := &anyDriver{}
	s := newAnyScene(t, d)
	conn := s.dial()
	for _, method := range []string{
		"/csi.v1.Controller/CreateVolume", "/csi.v1.Controller/DeleteVolume", "/csi.v1.Controller/ControllerExpandVolume",
		"/csi.v1.Controller/ControllerModifyVolume", "/csi.v1.Controller/CreateSnapshot", "/csi.v1.Controller/DeleteSnapshot",
		"/csi.v1.Controller/ListSnapshots", "/csi.v1.Controller/GetCapacity", "/csi.v1.Controller/ValidateVolumeCapabilities",
		"/csi.v1.Node/NodeStageVolume", "/csi.v1.GroupController/DeleteVolumeGroupSnapshot",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/made.up/Method",
		"/csi.v1.controller/ControllerPublishVolume", "/csi.v1.Controller/ControllerPublishVolume/", "//csi.v1.Controller/ControllerPublishVolume",
		"/csi.v1.Controller/ControllerPublishVolume?x", "/x/../csi.v1.Controller/ControllerPublishVolume", "/" + strings.Repeat("long", 1000), "/%41",
	} {
		err := conn.Invoke(s.ctx, method, &csi.DeleteVolumeRequest{VolumeId: "v"}, &emptypb.Empty{})
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "forwards only the calls that attaching needs") {
			t.Errorf("%q: got %v", method, err)
		}
	}
	if err := conn.Invoke(s.ctx, "/csi.v1.Controller/DeleteVolume", &emptypb.Empty{}, &emptypb.Empty{}); !strings.Contains(err.Error(), `"/csi.v1.Controller/DeleteVolume"`) {
		t.Errorf("the method is not named: %v", err)
	}
	stream, err := conn.NewStream(s.ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/csi.v1.SnapshotMetadata/GetMetadataAllocated")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&emptypb.Empty{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stream got %v", err)
	}
	if got := d.methods(); len(got) > 0 {
		t.Errorf("%q arrived", got)
	}
	s.logged("Answered a call with an error")

	want := []string{"/csi.v1.Identity/GetPluginInfo", "/csi.v1.Identity/GetPluginCapabilities", "/csi.v1.Identity/Probe",
		"/csi.v1.Controller/ControllerGetCapabilities", publishMethod, "/csi.v1.Controller/ControllerUnpublishVolume",
		"/csi.v1.Controller/ListVolumes"}
	for _, method := range want {
		if err := conn.Invoke(s.ctx, method, &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	if got := d.methods(); !slices.Equal(got, want) {
		t.Errorf("%q arrived, want %q", got, want)
	}
}

// The client's header table has entries of the refused calls, that of the driver has not.
func TestRefusedCallsDoNotDisturbOthers(t *testing.T) {
	s := newAnyScene(t, &anyDriver{answer: func(stream grpc.ServerStream, req *csi.ControllerPublishVolumeRequest) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		if got := md.Get("number"); len(got) != 1 || got[0] != req.GetVolumeId() {
			return status.Errorf(codes.Internal, "call %s has number %q", req.GetVolumeId(), got)
		}
		return stream.SendMsg(&emptypb.Empty{})
	}})
	conn := s.dial()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for n := range 50 {
				number := string(rune('a'+i)) + strings.Repeat("x", n)
				ctx := metadata.AppendToOutgoingContext(s.ctx, "number", number, "key"+number, number)
				req := &csi.ControllerPublishVolumeRequest{VolumeId: number}
				if err := conn.Invoke(ctx, "/csi.v1.Controller/DeleteVolume", req, &emptypb.Empty{}); status.Code(err) != codes.PermissionDenied {
					t.Errorf("refused call: %v", err)
				}
				if err := conn.Invoke(ctx, publishMethod, req, &emptypb.Empty{}); err != nil {
					t.Errorf("forwarded call: %v", err)
				}
			}
		})
	}
	callers.Wait()
}

func TestCallAndAnswerArriveAsTheyWereSent(t *testing.T) {
	text := strings.Repeat("größer, 100% \x07\n", 1000) // more than one frame of headers
	details, err := status.New(codes.ResourceExhausted, text).WithDetails(&csi.ControllerUnpublishVolumeRequest{VolumeId: "detail"})
	if err != nil {
		t.Fatal(err)
	}
	var deadline time.Time
	var got metadata.MD
	unknown := []byte("\xfa\x7f\x03abc") // field 2047, which no message has
	s := newAnyScene(t, &anyDriver{answer: func(stream grpc.ServerStream, req *csi.ControllerPublishVolumeRequest) error {
		deadline, _ = stream.Context().Deadline()
		got, _ = metadata.FromIncomingContext(stream.Context())
		if req.GetVolumeId() == "fails at once" {
			return details.Err()
		}
		stream.SetTrailer(metadata.Pairs("t", "trailer"))
		if err := stream.SetHeader(metadata.Pairs("h", "header", "h-bin", "\x00\xff")); err != nil {
			return err
		}
		if req.GetVolumeId() == "fails" {
			return details.Err()
		}
		return stream.SendMsg(req)
	}})
	conn := s.dial()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(s.ctx, "large", strings.Repeat("y", 20_000), "a-bin", "\x00\x01"), time.Minute)
	defer cancel()
	began := time.Now()
	want, _ := ctx.Deadline()
	req := &csi.ControllerPublishVolumeRequest{VolumeId: strings.Repeat("v", 100_000), Secrets: map[string]string{"k": "s"}}
	req.ProtoReflect().SetUnknown(unknown)
	var answer csi.ControllerPublishVolumeRequest
	var header, trailer metadata.MD
	if err := conn.Invoke(ctx, publishMethod, req, &answer, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(req, &answer) {
		t.Error("the message has changed")
	}
	if late := deadline.Sub(want); late < -time.Second || late > time.Second+time.Since(began) { // gRPC sends how long is left
		t.Errorf("the deadline is %s late", late)
	}
	if got.Get("a-bin")[0] != "\x00\x01" || len(got.Get("large")[0]) != 20_000 || header.Get("h-bin")[0] != "\x00\xff" || trailer.Get("t")[0] != "trailer" {
		t.Errorf("metadata: %v, header %v, trailer %v", got, header, trailer)
	}
	// The second is answered by trailers only.
	for _, req.VolumeId = range []string{"fails", "fails at once"} {
		err = conn.Invoke(ctx, publishMethod, req, &answer)
		if !proto.Equal(status.Convert(err).Proto(), details.Proto()) {
			t.Errorf("%s: the status is %v with %d details", req.GetVolumeId(), status.Code(err), len(status.Convert(err).Details()))
		}
	}
}

func TestCallsThatEndEarlyEndInTheDriver(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error)
	d := &anyDriver{answer: func(stream grpc.ServerStream, _ *csi.ControllerPublishVolumeRequest) error {
		begun <- struct{}{}
		<-stream.Context().Done()
		ended <- stream.Context().Err()
		return status.FromContextError(stream.Context().Err()).Err()
	}}
	s := newAnyScene(t, d)
	conn := s.dial()
	ctx, cancel := context.WithCancel(s.ctx)
	go func() { _ = conn.Invoke(ctx, publishMethod, &emptypb.Empty{}, &emptypb.Empty{}) }()
	<-begun
	cancel()
	if err := <-ended; err == nil {
		t.Error("not canceled")
	}
	go func() { <-begun; <-ended }()
	ctx, cancel = context.WithTimeout(s.ctx, time.Second) // goes to the driver, which ends it
	defer cancel()
	err := conn.Invoke(ctx, publishMethod, &emptypb.Empty{}, &emptypb.Empty{})
	// gRPC for Go resets the stream (Canceled) if its deadline ends in the driver before it ends in the client.
	if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Canceled || d.connections.Load() != 1 {
		t.Errorf("the next call got %v, on connection %d", err, d.connections.Load())
	}
}

func TestDriverThatStopsLetsCallsOfItsClientsEnd(t *testing.T) {
	s := newScene(t, func(o *Options) { o.Grace = time.Hour })
	session := s.connect(s.hub())
	inFlight := s.hangingPublish(session)
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.driver.Stop(s.ctx) }()
	for open := true; open; { // a call that the driver does not take any more ends the session
		_ = session.Probe(s.ctx)
		select {
		case <-session.Ended().Done():
			open = false
		default:
		}
	}
	s.turn(fakecsi.Knobs{ReleaseAll: true})
	if err := <-inFlight; err != nil {
		t.Errorf("the call in flight got %v", err)
	}
	s.waitFor(stopped)
	s.logged("A client is gone")
}
