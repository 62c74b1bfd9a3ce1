package csiclient

import (
	"context"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// Session is one connection to one process of a CSI driver, from the moment
// that its identity was verified until the connection ends. It is safe for
// concurrent use.
type Session struct {
	conn *grpc.ClientConn
	info Info
	done chan struct{} // closed when the connection has ended, or is to be replaced
	once sync.Once     // of closing done

	mu      sync.Mutex
	calls   int  // in flight; guarded by mu
	closing bool // no further call may begin; guarded by mu
}

func newSession(conn *grpc.ClientConn, info Info) *Session {
	return &Session{conn: conn, info: info, done: make(chan struct{})}
}

// Info is what a driver reported about itself when it was connected to.
type Info struct {
	Name         string // GetPluginInfo.name
	Version      string // GetPluginInfo.vendor_version
	Capabilities Capabilities
}

// Capabilities are those of a driver that matter for attaching.
type Capabilities struct {
	// PublishUnpublish: the driver has a controller service with
	// PUBLISH_UNPUBLISH_VOLUME. Without it, attaching means nothing to the driver
	// and a VolumeAttachment is marked attached without a call.
	PublishUnpublish bool
	// PublishReadonly: PUBLISH_READONLY; without it readonly is never asked for.
	PublishReadonly bool
	// SingleNodeMultiWriter: SINGLE_NODE_MULTI_WRITER; it decides what
	// ReadWriteOnce and ReadWriteOncePod are called in CSI.
	SingleNodeMultiWriter bool
	// ListPublishedNodes: LIST_VOLUMES and LIST_VOLUMES_PUBLISHED_NODES.
	ListPublishedNodes bool
}

// Info returns what the driver reported about itself. It does not change during a Session.
func (s *Session) Info() Info { return s.info }

// Done is closed when the connection has ended, by either side, or is to be replaced:
// because the TLS files have changed, or the driver has sent a GOAWAY. Then no further call
// begins, and calls in flight go on until they have ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// ControllerPublishVolume makes that one call. The error is a gRPC status with the driver's
// message as it came: of any length, and it may repeat secrets of the request. On a
// Session that has ended its code is Unavailable and nothing was sent.
func (s *Session) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	return csi.NewControllerClient(s.conn).ControllerPublishVolume(ctx, req)
}

// ControllerUnpublishVolume makes that one call, with errors as in ControllerPublishVolume.
func (s *Session) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	return csi.NewControllerClient(s.conn).ControllerUnpublishVolume(ctx, req)
}

// Probe asks the driver whether it is ready. The error is nil, ErrNotReady or a gRPC
// status as in ControllerPublishVolume, with a message that can be shown.
func (s *Session) Probe(ctx context.Context) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	ready, err := rpc.Probe(ctx, s.conn)
	if err != nil {
		return sanitizeError(err)
	}
	if !ready {
		return ErrNotReady
	}
	return nil
}

// Close lets no further call begin and closes the connection as soon as the
// last call in flight has ended. It does not wait for that: a server that asks
// its clients to go away (GOAWAY) still answers what it has taken, and the
// owner wants to connect again meanwhile.
func (s *Session) Close() {
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

// followState closes done when the connection has ended, or the driver has asked for no
// further calls (GOAWAY). It blocks until then.
func (s *Session) followState(ctx context.Context) {
	s.conn.WaitForStateChange(ctx, connectivity.Ready)
	s.finish()
}

// finish closes done.
func (s *Session) finish() { s.once.Do(func() { close(s.done) }) }
