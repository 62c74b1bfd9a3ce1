package testbed

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Gate passes the connections of one client on to a server. While the gate is shut, the client
// meets silence, as if the network had gone; what was sent meanwhile arrives when the gate is
// open again. Its methods may be called from any goroutine.
type Gate struct {
	listener net.Listener
	target   string
	cancel   context.CancelFunc
	loops    sync.WaitGroup

	mu   sync.Mutex
	open chan struct{} // closed while the gate is open; guarded by mu
}

// newGate makes an open gate in front of an address. The caller must close it.
func newGate(address string) (*Gate, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // an address that is in the certificate
	if err != nil {
		return nil, fmt.Errorf("make gate: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // ends with Close
	g := &Gate{listener: listener, target: address, cancel: cancel, open: make(chan struct{})}
	close(g.open)
	g.loops.Go(func() { g.accept(ctx) })
	return g, nil
}

// Address is where the gate listens.
func (g *Gate) Address() string { return g.listener.Addr().String() }

// Shut lets nothing through from now on. It may be called twice.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		g.open = make(chan struct{})
	default:
	}
}

// Open lets everything through again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// Close cuts all connections and blocks until everything has ended.
func (g *Gate) Close() {
	g.cancel()
	g.listener.Close()
	g.loops.Wait()
}

func (g *Gate) accept(ctx context.Context) {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return // closed
		}
		g.loops.Go(func() { g.forward(ctx, conn) })
	}
}

// forward joins one client to the API server until one of them hangs up.
func (g *Gate) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	if g.pass(ctx) != nil {
		return
	}
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.target)
	if err != nil {
		return
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var both sync.WaitGroup
	defer both.Wait()
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		both.Go(func() {
			defer cancel()
			g.copy(ctx, to, from)
		})
	}
	<-ctx.Done()
	client.Close()
	server.Close()
}

func (g *Gate) copy(ctx context.Context, to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if g.pass(ctx) != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		// The end of a connection goes through the gate like anything else.
		if err != nil {
			_ = g.pass(ctx)
			return
		}
	}
}

// pass blocks until the gate is open.
func (g *Gate) pass(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
