package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof" // in http.DefaultServeMux
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/connlimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
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

const (
	defaultMetricsPath = "/metrics"
	// policy lets a page load only the hub's own files. No inline script or style runs, even if one passes the escaping
	// of the templates.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
		"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

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
		reject(w, failure{http.StatusNotFound, "there is nothing at this path"})
	})
	all := http.NewServeMux()
	all.Handle(o.MetricsPath, promhttp.HandlerFor(o.Metrics.Gatherer(o.Source), promhttp.HandlerOpts{
		// One broken metric does not hide the others.
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            scrapeLog{loglimit.New(10, time.Minute)},
		MaxRequestsInFlight: 8,
	}))
	for _, path := range []string{Live, Ready, LeaderElection} {
		all.Handle(path, o.Probes)
	}
	all.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !isToLoopback(r) {
			reject(w, failure{http.StatusNotFound, "only metrics and probes are served on this address: use kubectl port-forward for the status page, the API and profiles"})
			return
		}
		local.ServeHTTP(w, r)
	})
	return guard(o.AllowedHosts, all)
}

// guard rejects all methods but GET and HEAD, and sets headers by which browsers only show the answer.
//
// It also rejects requests to a loopback address whose Host is a name of somebody else. A page of a website could
// resolve its own name to 127.0.0.1 (DNS rebinding), and read what a port-forward on the user's machine serves. Others
// than users of that machine reach the other addresses anyway, by any name.
func guard(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			reject(w, failure{http.StatusMethodNotAllowed, "only GET and HEAD are served: nothing can be changed here"})
		case isToLoopback(r) && !isOwnHost(r.Host, allowed):
			reject(w, failure{http.StatusMisdirectedRequest, fmt.Sprintf("the host %q is not served on a loopback address: use localhost or an IP address, or name the host in --http-allowed-hosts of the hub", r.Host)})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isToLoopback reports whether the local address of the request's connection is a loopback address.
func isToLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && local.IP.IsLoopback()
}

// ownName is localhost, or the name that the commands use in their port-forward. A website has no such name.
var ownName = regexp.MustCompile(`^(localhost|csi-attach-hub\.[^.]+\.svc)$`)

// isOwnHost reports whether the Host of a request, which may have a port, names this machine or is allowed.
func isOwnHost(host string, allowed []string) bool {
	name := strings.ToLower(strings.TrimSuffix((&url.URL{Host: host}).Hostname(), "."))
	_, err := netip.ParseAddr(name)
	return err == nil || ownName.MatchString(name) || slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(name, a) })
}

// failure is why a request has no other answer.
type failure struct {
	Code int    `json:"-"` // of HTTP
	Text string `json:"error"`
}

// reject answers with a failure.
func reject(w http.ResponseWriter, f failure) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Code)
	_ = json.NewEncoder(w).Encode(f) // the client may have left
}

// scrapeLog logs the errors of promhttp: one for each metric that it cannot send to a client that has left.
type scrapeLog struct{ limiter *loglimit.Limiter }

func (l scrapeLog) Println(v ...any) {
	l.limiter.Info(klog.Background(), "Cannot show all metrics", "problem", strings.TrimSpace(fmt.Sprintln(v...)))
}
