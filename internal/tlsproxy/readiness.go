package tlsproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

const (
	// probeInterval is the time between two Probes of the driver.
	probeInterval = 5 * time.Second
	// maxHealthConnections bounds the connections of the health port: it has no TLS.
	maxHealthConnections = 200
	// maxHealthHeaders bounds the headers of a request and of a driver's Probe, in bytes.
	maxHealthHeaders = 8 << 10
	// healthTimeout bounds the reading of a request, and its answer.
	healthTimeout = 2 * time.Second
)

var (
	errNotReady  = errors.New("the driver answers Probe with ready=false")
	errNotProbed = errors.New("the first Probe of the driver has not ended")
)

// readiness is whether the driver answers Probe with ready. It probes on its own and not when
// asked: a slow Probe delays no request of the kubelet, and nobody can flood the driver.
type readiness struct {
	target            *target
	timeout, interval time.Duration
	problem           atomic.Pointer[error] // result of the last Probe; nil before the first has ended
}

// run probes until ctx ends.
func (r *readiness) run(ctx context.Context) {
	for {
		problem := r.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		before := r.problem.Swap(&problem)
		switch logger := klog.FromContext(ctx); {
		case problem != nil && (before == nil || *before == nil):
			logger.Info("The driver is not ready", "problem", problem)
		case problem == nil && (before == nil || *before != nil):
			logger.Info("The driver is ready")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.interval):
		}
	}
}

// check returns nil if the driver is ready. It does not block.
func (r *readiness) check() error {
	if problem := r.problem.Load(); problem != nil {
		return *problem
	}
	return errNotProbed
}

// probe calls Probe. Its error has no text of the driver, which may hold secrets: anybody may ask
// the health port, and others may read the log.
func (r *readiness) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	socket, err := r.target.open(ctx)
	if err != nil {
		return err
	}
	defer socket.Close()
	conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
		// After its end gRPC gets it again, and fails.
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return socket, nil }),
		grpc.WithMaxHeaderListSize(maxHealthHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHealthHeaders)))
	if err != nil {
		return err
	}
	defer conn.Close()
	switch ready, err := rpc.Probe(ctx, conn); {
	case err != nil:
		return fmt.Errorf("the driver's Probe failed: %s", status.Code(err))
	case !ready:
		return errNotReady
	}
	return nil
}

// ServeHealth serves plain HTTP on a listener, which it closes, until ctx ends, and probes the
// driver meanwhile. /readyz is 200 while the driver answers Probe with ready, as the hub demands,
// and 503 otherwise. /healthz is 200. The kubelet asks: it cannot do mutual TLS.
func (p *Proxy) ServeHealth(ctx context.Context, listener net.Listener) error {
	server := p.healthServer()
	probing, stop := context.WithCancel(ctx)
	var probes sync.WaitGroup
	probes.Go(func() { p.readiness.run(probing) })
	defer probes.Wait()
	defer stop()
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve health: %w", err)
	}
	return nil
}

func (p *Proxy) healthServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := p.readiness.check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	open := acceptLimit{limit: maxHealthConnections}
	server := &http.Server{
		Handler: mux, ReadTimeout: healthTimeout, WriteTimeout: healthTimeout, MaxHeaderBytes: maxHealthHeaders,
		ConnState: func(conn net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				if oldest := open.enter(conn); oldest != nil {
					oldest.Close()
				}
			case http.StateClosed:
				open.leave(conn)
			}
		},
	}
	server.SetKeepAlivesEnabled(false)
	return server
}
