package tlsproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

const (
	// targetTimeout bounds connecting to the socket.
	targetTimeout = 5 * time.Second
	// acceptPause follows an error of accepting, such as too many open files.
	acceptPause = 100 * time.Millisecond
	// logInterval is the shortest time between two log lines about refused clients with the same message.
	logInterval = 10 * time.Second
	// logBurst is how many log lines about the socket may have the same message at once.
	logBurst = 5
)

// Options of a Proxy. All are required.
type Options struct {
	// Target is the path of the unix socket.
	Target string
	// Files are the certificate and key of the port, and as CA the authorities of the
	// clients' certificates.
	Files tlsfiles.Files
	// AllowedSANs are domain names, and URIs (with "://" in them). A client's certificate
	// must have one of them.
	AllowedSANs []string
	// MaxConnections is the number of clients that can be connected at once. As many more
	// can be in the TLS handshake; a new connection then replaces the oldest of these.
	MaxConnections int
	// IdleTimeout is how long a connection may be without data. It must be longer than the
	// longest call: a call sends no data until its end.
	IdleTimeout time.Duration
	// HandshakeTimeout bounds the TLS handshake of a client.
	HandshakeTimeout time.Duration
	// ProbeTimeout bounds a Probe of the driver for ServeHealth. It should be the hub's: a
	// driver that the hub serves would else not be ready.
	ProbeTimeout time.Duration
	// Grace is how long a client may stay that was asked to go: after the end of Serve's
	// ctx, or because its certificate is not accepted any more.
	Grace time.Duration
}

func (o Options) check() error {
	switch {
	case o.Target == "":
		return errors.New("the path of the socket is missing")
	case len(o.AllowedSANs) == 0 || slices.Contains(o.AllowedSANs, ""):
		return errors.New("the name that a client must have is missing")
	case o.MaxConnections < 1:
		return fmt.Errorf("%d connections at once are too few: at least 1", o.MaxConnections)
	case o.IdleTimeout <= 0:
		return fmt.Errorf("the idle timeout %s is not positive", o.IdleTimeout)
	case o.HandshakeTimeout <= 0:
		return fmt.Errorf("the handshake timeout %s is not positive", o.HandshakeTimeout)
	case o.ProbeTimeout <= 0:
		return fmt.Errorf("the probe timeout %s is not positive", o.ProbeTimeout)
	case o.Grace < 0:
		return fmt.Errorf("the grace %s is negative", o.Grace)
	}
	return nil
}

// Proxy forwards the calls of clients with mutual TLS to a unix socket.
type Proxy struct {
	options  Options
	material atomic.Pointer[tlsfiles.Material] // for connections to come
	poll     tlsfiles.Poll

	handshakes acceptLimit
	slots      chan struct{}     // holds one element for each client that is connected
	clients    sync.Map          // of *client: those that are connected
	refusals   *loglimit.Limiter // anybody can cause a refusal
	target     *target
	readiness  readiness
}

// New checks the options and reads the files. It starts nothing.
func New(o Options) (*Proxy, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	material, err := o.Files.Load()
	if err != nil {
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	socket := &target{path: o.Target, log: loglimit.New(logBurst, logInterval)}
	p := &Proxy{options: o, target: socket, poll: tlsfiles.Ticks,
		handshakes: acceptLimit{limit: o.MaxConnections}, slots: make(chan struct{}, o.MaxConnections),
		refusals: loglimit.New(1, logInterval), readiness: readiness{target: socket, timeout: o.ProbeTimeout, interval: probeInterval}}
	p.material.Store(material)
	return p, nil
}

// Serve accepts clients from a TCP listener, which it closes, until ctx ends. Then it asks
// the clients to go, which they do when their calls have ended, closes the remaining
// connections after the grace, and returns nil. A driver that is away or files that are not
// whole do not end it. When it returns, all its goroutines have ended.
func (p *Proxy) Serve(ctx context.Context, listener net.Listener) error {
	logger := klog.FromContext(ctx)
	var loops, connections sync.WaitGroup
	// Connections outlive ctx: after a call that was cut off it is not known whether the
	// volume is attached.
	lifetime, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	loops.Go(func() { p.followFiles(ctx) })
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	p.accept(ctx, listener, func(conn net.Conn) {
		connections.Go(func() { p.serve(lifetime, ctx, conn) })
	})
	listener.Close()
	loops.Wait()
	logger.Info("Taking no more clients, letting connections end", "connections", len(p.slots), "grace", p.options.Grace)
	defer time.AfterFunc(p.options.Grace, cut).Stop()
	connections.Wait()
	return nil
}

// accept calls serve for each connection until ctx ends. serve does not block.
func (p *Proxy) accept(ctx context.Context, listener net.Listener, serve func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return
		case err != nil:
			p.refusals.Info(klog.FromContext(ctx), "Cannot take clients", "problem", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		default:
			if oldest := p.handshakes.enter(conn); oldest != nil {
				p.refusals.Info(klog.FromContext(ctx), "Refused a client: too many others are in the TLS handshake", "client", oldest.RemoteAddr())
				oldest.Close()
			}
			serve(conn)
		}
	}
}

// followFiles uses new files for later connections, until ctx ends, and asks clients to go
// whose certificates the new files do not accept.
func (p *Proxy) followFiles(ctx context.Context) {
	tlsfiles.NewFollower(p.material.Load()).Run(ctx, p.poll, func(next *tlsfiles.Material) {
		p.material.Store(next)
		p.clients.Range(func(connected, _ any) bool {
			connected.(*client).check(next, time.Now())
			return true
		})
	})
}
