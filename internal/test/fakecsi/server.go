package fakecsi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
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
	// port 0 the first Start chooses a port for all later ones too.
	Endpoint string
	// TLS to serve with. Nil means none.
	TLS *tls.Config
	// Intercept (may be nil) gets each call before the Backend.
	Intercept grpc.UnaryServerInterceptor
}

// Server serves one Backend on an endpoint. It can be stopped or crashed and
// started again any number of times, with the same Backend.
type Server struct {
	options ServerOptions

	// mu guards all below. Start holds it while it listens, which takes no time:
	// no Start, Stop or Crash may run meanwhile.
	mu       sync.Mutex
	endpoint string
	running  *serving // nil: not started
}

// serving is a started server.
type serving struct {
	grpc     *grpc.Server
	listener net.Listener
	done     chan struct{} // closed when nothing is accepted any more
}

// refuse accepts no more connections. It shuts the socket down, because a closed listener is not
// enough: a process that this one is just starting has a copy of the descriptor until its exec,
// and would keep the endpoint in use.
func (s *serving) refuse() {
	lis, ok := s.listener.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := lis.SyscallConn(); err == nil {
		// An error means that it is closed already.
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
}

// NewServer makes a Server. Start starts it.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Backend == nil {
		return nil, errors.New("make server: there is no backend: set ServerOptions.Backend")
	}
	if _, _, err := splitEndpoint(o.Endpoint); err != nil {
		return nil, fmt.Errorf("make server: %w", err)
	}
	return &Server{options: o, endpoint: o.Endpoint}, nil
}

// Endpoint returns the endpoint with the port of the first Start.
func (s *Server) Endpoint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoint
}

// Start listens, and serves in the background until Stop or Crash. Clients can
// connect when it has returned.
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
	if s.options.Intercept != nil {
		opts = append(opts, grpc.ChainUnaryInterceptor(s.options.Intercept))
	}
	r := &serving{grpc: grpc.NewServer(opts...), listener: lis, done: make(chan struct{})}
	csi.RegisterIdentityServer(r.grpc, s.options.Backend)
	csi.RegisterControllerServer(r.grpc, s.options.Backend)
	s.running = r
	go func() {
		defer close(r.done)
		// It returns when the server is stopped; its error says only that.
		_ = r.grpc.Serve(peerListener{lis})
	}()
	return nil
}

// Stop accepts no more calls, blocks until those in flight have ended or ctx ends,
// cuts the connections and removes a unix socket. It is a no-op if the Server is
// not started.
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
		// The graceful stop ends with the last call, which may go on without its
		// caller (Knobs.FinishAbandoned), so this does not wait for it.
		r.grpc.Stop()
	}
	<-r.done
}

// Crash cuts all connections at once, as the end of the process does, and leaves
// the file of a unix socket behind. It cancels the contexts of calls in flight and
// does not wait for these calls. It is a no-op if the Server is not started.
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

// splitEndpoint returns network and address of unix:///path, tcp://host:port or
// host:port.
func splitEndpoint(endpoint string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(endpoint, "unix://"); ok {
		if !filepath.IsAbs(path) {
			return "", "", fmt.Errorf("endpoint %q: the path is not absolute: write unix:///path/to/socket", endpoint)
		}
		return "unix", path, nil
	}
	address = strings.TrimPrefix(endpoint, "tcp://")
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", "", fmt.Errorf("endpoint %q: %w: write unix:///path, tcp://host:port or host:port", endpoint, err)
	}
	return "tcp", address, nil
}

// Listen listens on unix:///path, tcp://host:port or host:port. It replaces what is
// at the path.
func Listen(endpoint string) (net.Listener, error) {
	network, address, err := splitEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		_ = os.Remove(address) // of a server that crashed; if it cannot be removed, Listen says so
	}
	lis, err := new(net.ListenConfig).Listen(context.Background(), network, address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", endpoint, err)
	}
	return lis, nil
}
