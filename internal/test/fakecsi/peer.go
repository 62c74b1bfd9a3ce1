package fakecsi

import (
	"context"
	"net"

	"google.golang.org/grpc/peer"
)

// peerListener gives each connection over a unix socket an address that has the process at its other end. A test can so tell its
// clients apart.
type peerListener struct{ net.Listener }

// Accept implements net.Listener.
func (l peerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if c, ok := conn.(*net.UnixConn); ok && err == nil {
		return peerConn{c, processAddr{c.RemoteAddr(), peerPID(c)}}, nil
	}
	return conn, err
}

type peerConn struct {
	*net.UnixConn
	remote processAddr
}

// RemoteAddr implements net.Conn.
func (c peerConn) RemoteAddr() net.Addr { return c.remote }

// processAddr is the address of a process.
type processAddr struct {
	net.Addr
	pid int // 0: not known
}

// connectedProcess returns the process that has made the connection of a call; 0: not known.
func connectedProcess(ctx context.Context) int {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return 0
	}
	a, _ := p.Addr.(processAddr)
	return a.pid
}
