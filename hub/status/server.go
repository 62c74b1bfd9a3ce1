package status

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof" // in http.DefaultServeMux
	"regexp"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/connlimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/httpguard"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
)

// closeGrace is how long requests may take to end when the server does.
const closeGrace = 3 * time.Second

// Options of a Server. Endpoint, Source, Metrics and Probes are required.
type Options struct {
	// Endpoint is where to listen: "host:port", ":port" for all addresses.
	Endpoint string
	// MetricsPath is where the metrics are; "" means "/metrics". CheckMetricsPath says whether it is free.
	MetricsPath string
	// Source is the running hub.
	Source Source
	// Metrics has the counters.
	Metrics *Metrics
	// Probes says whether the process is live and ready.
	Probes *probes.Probes
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
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Endpoint)
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

const defaultMetricsPath = "/metrics"

var (
	plainPath = regexp.MustCompile(`^(/[^/{}?#%\s]+)+$`)
	takenPath = regexp.MustCompile(`^/(livez|readyz|healthz/leader-election|attachments|(api|debug|drivers|attachments|assets)/.*)$`)
)

// CheckMetricsPath returns an error if Options.MetricsPath is no plain path, or if something else is served there.
func CheckMetricsPath(p string) error {
	switch {
	case !plainPath.MatchString(p):
		return fmt.Errorf("the metrics path %q is not a plain path like %s", p, defaultMetricsPath)
	case takenPath.MatchString(p):
		return fmt.Errorf("the metrics path %q is taken: something else is served there", p)
	}
	return nil
}

// newHandler returns the handler of all paths: metrics and probes for all, everything else on loopback addresses only.
// In a Pod, requests to these come from the Pod itself, and from users who may forward its ports: the right to
// port-forward is the authorization.
func newHandler(o Options) http.Handler {
	o.MetricsPath = cmp.Or(o.MetricsPath, defaultMetricsPath)
	local := newSite(o).routes()
	if o.Profiling {
		local.Handle("/debug/pprof/", http.DefaultServeMux)
	}
	local.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		httpguard.Reject(w, failure{Code: http.StatusNotFound, Text: "there is nothing at this path"})
	})
	all := http.NewServeMux()
	all.Handle(o.MetricsPath, promhttp.HandlerFor(o.Metrics.Gatherer(o.Source), promhttp.HandlerOpts{
		// One broken metric does not hide the others.
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            scrapeLog{loglimit.New(10, time.Minute)},
		MaxRequestsInFlight: 8,
	}))
	for _, path := range []string{probes.Live, probes.Ready, probes.LeaderElection} {
		all.Handle(path, o.Probes)
	}
	all.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !httpguard.IsToLoopback(r) {
			httpguard.Reject(w, failure{Code: http.StatusNotFound, Text: "only metrics and probes are served on this address: use kubectl port-forward for the status page, the API and profiles"})
			return
		}
		// Before the caches and the drivers are known, all would seem unserved.
		if err := o.Probes.Err(probes.Ready); err != nil && !strings.HasPrefix(r.URL.Path, "/debug/") {
			httpguard.Reject(w, failure{Code: http.StatusServiceUnavailable, Text: "the hub has not started: " + err.Error()})
			return
		}
		local.ServeHTTP(w, r)
	})
	return httpguard.Guard(o.AllowedHosts, all)
}

// failure is why a request has no other answer.
type failure = httpguard.Failure

// scrapeLog logs the errors of promhttp: one for each metric that it cannot send to a client that has left.
type scrapeLog struct{ limiter *loglimit.Limiter }

func (l scrapeLog) Println(v ...any) {
	l.limiter.Info(klog.Background(), "Cannot show all metrics", "problem", strings.TrimSpace(fmt.Sprintln(v...)))
}
