package tlsproxy

import (
	"net"
	"slices"
	"sync"
)

// acceptLimit bounds the connections that are in the TLS handshake, or of the health port. At
// the limit a new connection replaces the oldest: connections that send nothing cannot keep out
// clients whose handshakes or requests take little time.
type acceptLimit struct {
	limit int

	mu    sync.Mutex
	conns []net.Conn // in order of arrival; guarded by mu
}

// enter adds a connection. At the limit it returns the oldest connection, which the caller
// must close, else nil.
func (l *acceptLimit) enter(conn net.Conn) (oldest net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) == l.limit {
		oldest = l.conns[0]
		l.conns = slices.Delete(l.conns, 0, 1)
	}
	l.conns = append(l.conns, conn)
	return oldest
}

// leave removes a connection whose handshake, or which, has ended.
func (l *acceptLimit) leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = slices.DeleteFunc(l.conns, func(c net.Conn) bool { return c == conn })
}
