package fakecsi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// ServerOptions of a Server.
type ServerOptions struct {
	// Backend to serve. Required.
	Backend *Backend
	// Endpoint to listen on: unix:///path or tcp://host:port. Required. With
	// port 0 the first Start chooses a port and keeps it for all later ones.
	Endpoint string
	// TLS to serve with. Nil means none.
	TLS *tls.Config
	// Register, if set, is called on each Start to serve further services.
	Register func(grpc.ServiceRegistrar)
}

// Server serves one Backend on an endpoint. It can be stopped or crashed and
// started again, any number of times: the Backend lives on.
type Server struct {
	options ServerOptions

	// mu guards all below. Start holds it while it listens, which takes no time,
	// so that it excludes another Start, Stop or Crash.
	mu       sync.Mutex
	endpoint string
	running  *serving // nil: not started
}

// serving is the time between a start and a stop.
type serving struct {
	grpc     *grpc.Server
	listener net.Listener
	done     chan struct{} // closed when nothing is accepted any more
}

// refuse has no more connections accepted. To close the listener would do, if not for a
// process that this one is just starting: until its exec it has the descriptor too, and
// would keep the endpoint in use.
func (s *serving) refuse() {
	lis, ok := s.listener.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := lis.SyscallConn(); err == nil {
		// Errors: it is closed already.
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
}

// NewServer makes a Server. It listens only when started.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Backend == nil {
		return nil, errors.New("make server: there is no backend: set ServerOptions.Backend")
	}
	if _, _, err := splitEndpoint(o.Endpoint); err != nil {
		return nil, fmt.Errorf("make server: %w", err)
	}
	return &Server{options: o, endpoint: o.Endpoint}, nil
}

// Endpoint is where the Server listens when it is started.
func (s *Server) Endpoint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoint
}

// Start listens and serves until Stop or Crash. When it has returned without an
// error, connections are accepted.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return fmt.Errorf("start server: %s is being served already", s.endpoint)
	}
	lis, err := Listen(s.endpoint)
	if err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	if lis.Addr().Network() == "tcp" {
		s.endpoint = "tcp://" + lis.Addr().String()
	}
	var opts []grpc.ServerOption
	if s.options.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(s.options.TLS)))
	}
	r := &serving{grpc: grpc.NewServer(opts...), listener: lis, done: make(chan struct{})}
	csi.RegisterIdentityServer(r.grpc, s.options.Backend)
	csi.RegisterControllerServer(r.grpc, s.options.Backend)
	if s.options.Register != nil {
		s.options.Register(r.grpc)
	}
	s.running = r
	go func() {
		defer close(r.done)
		// It returns when the server is stopped, and has no other news then.
		_ = r.grpc.Serve(lis)
	}()
	return nil
}

// Stop takes no more calls, waits until those in flight have ended or ctx is
// done, then cuts the connections. A unix socket is removed. It is a no-op if
// the Server is not started.
func (s *Server) Stop(ctx context.Context) {
	r := s.take()
	if r == nil {
		return
	}
	r.refuse()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.grpc.GracefulStop()
	}()
	select {
	case <-drained:
	case <-ctx.Done():
		// The graceful stop ends with the last call, which may be one that goes
		// on without its caller (Knobs.FinishAbandoned): not waited for.
		r.grpc.Stop()
	}
	<-r.done
}

// Crash cuts all connections at once, as the end of the process would, and
// leaves the file of a unix socket behind. The contexts of calls in flight are
// cancelled; it does not wait for them. It is a no-op if the Server is not
// started.
func (s *Server) Crash() {
	r := s.take()
	if r == nil {
		return
	}
	if lis, ok := r.listener.(*net.UnixListener); ok {
		lis.SetUnlinkOnClose(false)
	}
	r.refuse()
	r.grpc.Stop()
	<-r.done
}

func (s *Server) take() *serving {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running
	s.running = nil
	return r
}
