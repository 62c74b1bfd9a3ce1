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
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

// Session is one connection to one process of a CSI driver whose identity was
// verified. It is safe for concurrent use.
type Session struct {
	conn *grpc.ClientConn
	info Info
	done chan struct{} // see Done
	once sync.Once     // closes done

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
	Version      string // GetPluginInfo.vendor_version, sanitized; of any length
	Capabilities Capabilities
}

// Capabilities are the capabilities of a driver that matter for attaching.
type Capabilities struct {
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
	// GetVolume: GET_VOLUME and LIST_VOLUMES_PUBLISHED_NODES, so that ControllerGetVolume reports the nodes of a volume.
	GetVolume bool
	// GetVolumeHealth: GET_VOLUME_HEALTH (CSI 1.13, alpha).
	GetVolumeHealth bool
}

// PublishUnpublish is the name of the capability to attach and detach volumes.
const PublishUnpublish = "PUBLISH_UNPUBLISH_VOLUME"

// Names returns the capabilities as the CSI specification names them.
func (c Capabilities) Names() []string {
	var names []string
	for _, known := range []struct {
		has  bool
		name string
	}{
		{c.PublishUnpublish, PublishUnpublish},
		{c.PublishReadonly, "PUBLISH_READONLY"},
		{c.SingleNodeMultiWriter, "SINGLE_NODE_MULTI_WRITER"},
		{c.ListPublishedNodes, "LIST_VOLUMES_PUBLISHED_NODES"},
		{c.GetVolume, "GET_VOLUME"},
		{c.GetVolumeHealth, "GET_VOLUME_HEALTH"},
	} {
		if known.has {
			names = append(names, known.name)
		}
	}
	return names
}

// Info returns what the driver reported about itself. It does not change during a Session.
func (s *Session) Info() Info { return s.info }

// Done returns a channel that is closed when the connection has ended, or has to be replaced
// because the TLS files have changed or the driver has sent a GOAWAY. Then no further call
// begins, and calls in flight go on until they have ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// ControllerPublishVolume makes that call once. The error is a gRPC status with the driver's
// message unchanged: it may have any length and repeat secrets of the request. If the Session
// has ended, the code is Unavailable and nothing was sent.
func (s *Session) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	return csi.NewControllerClient(s.conn).ControllerPublishVolume(ctx, req)
}

// ControllerUnpublishVolume makes that call once, with errors as in ControllerPublishVolume.
func (s *Session) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	return csi.NewControllerClient(s.conn).ControllerUnpublishVolume(ctx, req)
}

// Probe asks the driver whether it is ready. The error is nil, ErrNotReady or a gRPC
// status as in ControllerPublishVolume, with a sanitized message.
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

// Close lets no further call begin, and closes the connection when the last call in
// flight has ended. It does not block until then: a server that has sent a GOAWAY still
// answers the calls in flight, and the owner connects again meanwhile.
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

// follow calls f in a goroutine of its own. A panic in it ends the Session: its owner connects again.
func (s *Session) follow(ctx context.Context, f func()) {
	go panics.Contain(func(err error) {
		klog.FromContext(ctx).Error(err, "Failed to follow the connection to the driver, ending it")
		s.finish()
		s.Close()
	}, f)
}

// followState closes done when the connection has ended, or the driver has asked for no
// further calls (GOAWAY). It blocks until then.
func (s *Session) followState(ctx context.Context) {
	s.conn.WaitForStateChange(ctx, connectivity.Ready)
	s.finish()
}

// finish closes done.
func (s *Session) finish() { s.once.Do(func() { close(s.done) }) }
