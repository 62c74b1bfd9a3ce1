package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/connlimit"
)

const (
	defaultMetricsPath = "/metrics"

	// Bounds for clients. A profile gets its own duration on top.
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	maxConnections = 500
	// closeGrace is how long requests may take to end when the server does.
	closeGrace = 3 * time.Second
)

// Options of a Server. Endpoint, Source and Metrics are required.
type Options struct {
	// Endpoint is where to listen: "host:port", ":port" for all addresses.
	Endpoint string
	// MetricsPath is where the metrics are; "" means "/metrics".
	MetricsPath string
	// Source is the running hub.
	Source Source
	// Volumes asks drivers about the health of volumes; nil: /api/v1/volume-health is not served.
	Volumes VolumeHealthReader
	// Metrics has the counters.
	Metrics *Metrics
	// Probes says whether the process is live and ready; nil for one that always is.
	Probes *Probes
	// LeaderCheck is what /healthz/leader-election answers: an error if a lease that
	// should have been renewed was not. Nil means never.
	LeaderCheck func() error
	// AllowedHosts are names in the Host of requests to loopback addresses, besides localhost, IP addresses and the
	// name that the commands use in their port-forward.
	AllowedHosts []string
	// Profiling serves /debug/pprof on loopback addresses: heap and CPU profiles and the command line.
	Profiling bool
}

func (o Options) check() error {
	switch {
	case o.Endpoint == "":
		return errors.New("the address to listen on is missing")
	case o.Source == nil:
		return errors.New("the source is missing")
	case o.Metrics == nil:
		return errors.New("the metrics are missing")
	}
	return CheckMetricsPath(o.MetricsPath)
}

// Server shows a running hub over HTTP. No request changes anything.
type Server struct {
	options  Options
	handler  http.Handler
	listener net.Listener // nil until Listen
}

// New checks the options. It starts nothing.
func New(o Options) (*Server, error) {
	o.MetricsPath = cmp.Or(o.MetricsPath, defaultMetricsPath)
	o.Probes = cmp.Or(o.Probes, NewProbes())
	if o.LeaderCheck == nil {
		o.LeaderCheck = func() error { return nil }
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("make HTTP server: %w", err)
	}
	return &Server{options: o, handler: newHandler(o)}, nil
}

// Listen opens the port, so that a program that cannot have it fails at its start. Clients can
// connect from then on; Run, which must follow, answers them.
func (s *Server) Listen(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.options.Endpoint)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	s.listener = listener
	return nil
}

// Addr returns the address that it listens on, after Listen.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run answers requests until ctx ends, and listens first if Listen was not called. When
// ctx has ended it takes no more requests, gives those in flight closeGrace, and returns nil.
// ctx should end after the hub has drained, so that people can follow the drain. A Server can run
// once.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		if err := s.Listen(ctx); err != nil {
			return err
		}
	}
	server := s.httpServer(ctx)
	klog.FromContext(ctx).Info("Serving HTTP", "address", s.Addr().String(), "profiling", s.options.Profiling)
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

// httpServer returns the server with its bounds. It serves HTTP/1 only: a connection has one request at a time. The contexts
// of its requests end with ctx.
func (s *Server) httpServer(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         (&connlimit.Limit{Most: maxConnections}).Follow,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(logWriter{klog.FromContext(ctx)}, "", 0),
	}
}

// logWriter logs the errors of net/http about single connections.
type logWriter struct{ logger klog.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.logger.V(2).Info("HTTP", "problem", strings.TrimSpace(string(line)))
	return len(line), nil
}
