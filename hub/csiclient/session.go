package csiclient

import (
	"context"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

// Session is one connection to one process of a CSI driver whose identity was
// verified. It is safe for concurrent use.
type Session struct {
	conn   *grpc.ClientConn
	driver string   // as it is configured
	count  CallFunc // may be nil
	info   Info
	ended  context.Context // see Ended
	finish context.CancelFunc

	mu      sync.Mutex
	calls   int  // in flight; guarded by mu
	closing bool // no further call may begin; guarded by mu
}

// CallFunc takes a call that has ended: its full gRPC path, the code of the answer and
// the length of the call. It must be safe for concurrent use and must not block.
type CallFunc func(method string, code codes.Code, took time.Duration)

func newSession(ctx context.Context, driver string, count CallFunc) *Session {
	ended, finish := context.WithCancel(ctx)
	return &Session{driver: driver, count: count, ended: ended, finish: finish}
}

// Info is what a driver reported about itself when it was connected to.
type Info struct {
	Name         string // GetPluginInfo.name
	Version      string // GetPluginInfo.vendor_version, sanitized; of any length
	Capabilities Capabilities
}

// Capabilities are the capabilities of a driver that matter for attaching.
type Capabilities struct {
	ControllerService bool // CONTROLLER_SERVICE: without it, all others are false
	// PublishUnpublish: the driver has a controller service with
	// PUBLISH_UNPUBLISH_VOLUME. For a driver that never had it, a VolumeAttachment is
	// marked attached without a call.
	PublishUnpublish bool
	// PublishReadonly: PUBLISH_READONLY. Requests to a driver without it never set readonly.
	PublishReadonly bool
	// SingleNodeMultiWriter: SINGLE_NODE_MULTI_WRITER. It decides which CSI access modes
	// ReadWriteOnce and ReadWriteOncePod become.
	SingleNodeMultiWriter bool
	// ListPublishedNodes: LIST_VOLUMES and LIST_VOLUMES_PUBLISHED_NODES.
	ListPublishedNodes bool
}

// Names returns the capabilities as the CSI specification names them.
func (c Capabilities) Names() []string {
	var names []string
	for _, known := range []struct {
		has  bool
		name string
	}{
		{c.ControllerService, "CONTROLLER_SERVICE"},
		{c.PublishUnpublish, "PUBLISH_UNPUBLISH_VOLUME"},
		{c.PublishReadonly, "PUBLISH_READONLY"},
		{c.SingleNodeMultiWriter, "SINGLE_NODE_MULTI_WRITER"},
		{c.ListPublishedNodes, "LIST_VOLUMES_PUBLISHED_NODES"},
	} {
		if known.has {
			names = append(names, known.name)
		}
	}
	return names
}

// Info returns what the driver reported about itself. It does not change during a Session.
func (s *Session) Info() Info { return s.info }

// Ended returns a context that ends when the Session is closed, or when the connection has ended or must be replaced
// because the TLS files have changed or the driver has sent a GOAWAY. Then no further call
// begins, and calls in flight go on until they have ended.
func (s *Session) Ended() context.Context { return s.ended }

// ControllerPublishVolume makes that call once. The error is a gRPC status with the driver's
// message unchanged: it may have any length and repeat secrets of the request. If the Session
// has ended, the code is Unavailable and nothing was sent.
func (s *Session) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return csi.NewControllerClient(s.conn).ControllerPublishVolume(ctx, req)
}

// ControllerUnpublishVolume makes that call once, with errors as in ControllerPublishVolume.
func (s *Session) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return csi.NewControllerClient(s.conn).ControllerUnpublishVolume(ctx, req)
}

// Probe asks the driver whether it is ready. The error is nil, ErrNotReady or a gRPC
// status as in ControllerPublishVolume, with a sanitized message.
func (s *Session) Probe(ctx context.Context) error {
	ready, err := rpc.Probe(ctx, s.conn)
	if err != nil {
		return sanitizeError(err)
	}
	if !ready {
		return ErrNotReady
	}
	return nil
}

// Close lets no further call begin, and closes the connection when the last call in
// flight has ended. It does not block until then: a server that has sent a GOAWAY still
// answers the calls in flight, and the owner connects again meanwhile.
func (s *Session) Close() {
	s.finish() // before calls are refused, so that their callers see why
	s.mu.Lock()
	idle := !s.closing && s.calls == 0
	s.closing = true
	s.mu.Unlock()
	if idle {
		s.conn.Close()
	}
}

func (s *Session) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return status.Error(codes.Unavailable, "the connection to the driver has ended")
	}
	s.calls++
	return nil
}

func (s *Session) end() {
	s.mu.Lock()
	s.calls--
	last := s.closing && s.calls == 0
	s.mu.Unlock()
	if last {
		s.conn.Close()
	}
}

// intercept is the grpc.UnaryClientInterceptor of all calls. It limits the answer, and counts the call.
func (s *Session) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	limit := maxAnswer
	if method == csi.Controller_ListVolumes_FullMethodName {
		limit = maxPage
	}
	begin := time.Now()
	err := explainLimit(s.driver, method, limit, invoke(ctx, method, req, reply, conn, append(opts, grpc.MaxCallRecvMsgSize(limit))...))
	if s.count != nil {
		s.count(method, status.Code(err), time.Since(begin))
	}
	return err
}

// follow calls f in a goroutine of its own. A panic in it ends the Session: its owner connects again.
func (s *Session) follow(f func()) {
	go panics.Contain(func(err error) {
		klog.FromContext(s.ended).Error(err, "Failed to follow the connection to the driver, ending it")
		s.Close()
	}, f)
}

// followState finishes the Session when the connection has ended, or the driver accepts no
// further calls (GOAWAY). It blocks until then.
func (s *Session) followState() {
	s.conn.WaitForStateChange(s.ended, connectivity.Ready)
	s.finish()
}
