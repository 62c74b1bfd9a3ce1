package status

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/connlimit"
)

// closeGrace is how long requests may take to end when the server does.
const closeGrace = 3 * time.Second

// Options of a Server. Endpoint, Source and Metrics are required.
type Options struct {
	// Endpoint is where to listen: "host:port", ":port" for all addresses.
	Endpoint string
	// MetricsPath is where the metrics are; "" means "/metrics". CheckMetricsPath says whether it is free.
	MetricsPath string
	// Source is the running hub.
	Source Source
	// Volumes asks drivers about the health of volumes; nil: /api/v1/volume-health is not served.
	Volumes VolumeHealthReader
	// Metrics has the counters.
	Metrics *Metrics
	// Probes says whether the process is live and ready; nil for one that always is.
	Probes *Probes
	// AllowedHosts are names in the Host of requests to loopback addresses, besides localhost, IP addresses and the
	// name that the commands use in their port-forward.
	AllowedHosts []string
	// Profiling serves /debug/pprof on loopback addresses: heap and CPU profiles and the command line.
	Profiling bool
}

// Server shows a running hub over HTTP. No request changes anything.
type Server struct {
	handler  http.Handler
	listener net.Listener
}

// Listen opens the port, so that a program that cannot have it fails at its start. Clients can
// connect from then on; Run, which must follow, answers them.
func Listen(ctx context.Context, o Options) (*Server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	return &Server{newHandler(o), listener}, nil
}

// Addr returns the address that it listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run answers requests until ctx ends. Then it takes no more requests, gives those in flight closeGrace, and returns
// nil. ctx should end after the hub has drained, so that people can follow the drain. A Server can run once.
func (s *Server) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	server := &http.Server{ // HTTP/1 only: a connection has one request at a time
		Handler: s.handler,
		// Bounds for clients. A profile gets its own duration on top.
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnState:         (&connlimit.Limit{Most: 500}).Follow,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		// What net/http says of single connections, at V(2).
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(logger), -2),
	}
	logger.Info("Serving HTTP", "address", s.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	grace, cancelGrace := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancelGrace()
	if server.Shutdown(grace) != nil {
		server.Close() // the clients that are left do not read
	}
	<-ended
	return nil
}
