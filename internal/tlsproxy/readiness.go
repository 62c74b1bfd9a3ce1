package tlsproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

const (
	// probeTimeout bounds a Probe of the driver. It must be below timeoutSeconds of the
	// readinessProbe in container.yaml.
	probeTimeout = 3 * time.Second
	// probeInterval is how long the result of a Probe holds.
	probeInterval = time.Second
	// maxHealthConnections bounds the connections of the health port: it has no TLS.
	maxHealthConnections = 50
	// maxHealthHeaders bounds the headers of a request and of a driver's Probe, in bytes.
	maxHealthHeaders = 8 << 10
	// healthTimeout bounds a request apart from the Probe.
	healthTimeout = 2 * time.Second
)

var errNotReady = errors.New("the driver answers Probe with ready=false")

// readiness is whether the driver answers Probe with ready. It probes when asked, once at a
// time, so that nobody can flood the driver.
type readiness struct {
	target            string
	timeout, interval time.Duration

	mu      sync.Mutex // held during a Probe
	probed  time.Time  // end of the last Probe; guarded by mu
	problem error      // its result; guarded by mu
}

// check returns nil if the driver is ready. It blocks for at most a few timeouts.
func (r *readiness) check(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.probed.IsZero() && time.Since(r.probed) < r.interval {
		return r.problem
	}
	before := r.problem
	// Others may wait for the result: it does not end with the request.
	r.problem = r.probe(context.WithoutCancel(ctx))
	first := r.probed.IsZero()
	r.probed = time.Now()
	switch logger := klog.FromContext(ctx); {
	case r.problem != nil && (first || before == nil):
		logger.Info("The driver is not ready", "problem", r.problem)
	case r.problem == nil && (first || before != nil):
		logger.Info("The driver is ready")
	}
	return r.problem
}

func (r *readiness) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.target)
		}),
		grpc.WithMaxHeaderListSize(maxHealthHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHealthHeaders)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ready, err := rpc.Probe(ctx, conn)
	if err == nil && !ready {
		return errNotReady
	}
	return err
}

// ServeHealth serves plain HTTP on a listener, which it closes, until ctx ends. /readyz is 200
// while the driver answers Probe with ready, as the hub demands, and 503 otherwise. /healthz is
// 200. The kubelet asks: it cannot do mutual TLS.
func (p *Proxy) ServeHealth(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		switch err := p.readiness.check(r.Context()); {
		case err == nil:
			fmt.Fprintln(w, "ok")
		case errors.Is(err, errNotReady):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			// Anybody may ask, so the driver's text is only in the log.
			http.Error(w, "Probe of the driver failed: "+status.Code(err).String(), http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{
		Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadTimeout: healthTimeout, WriteTimeout: healthTimeout + 2*probeTimeout, MaxHeaderBytes: maxHealthHeaders,
	}
	server.SetKeepAlivesEnabled(false)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(netutil.LimitListener(listener, maxHealthConnections)); ctx.Err() == nil {
		return fmt.Errorf("serve health: %w", err)
	}
	return nil
}
