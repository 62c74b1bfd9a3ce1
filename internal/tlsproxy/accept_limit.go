package tlsproxy

import (
	"net"
	"slices"
	"sync"
)

// acceptLimit bounds the connections that are in the TLS handshake. When it is reached, a
// new one replaces the one that has been in it longest: connections that send nothing cannot
// keep out clients with a certificate, whose handshakes take no time.
type acceptLimit struct {
	limit int

	mu    sync.Mutex
	conns []net.Conn // in order of arrival; guarded by mu
}

// enter adds a connection. It returns the one that has to be closed for it, nil if none.
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

// leave removes a connection, unless it was replaced.
func (l *acceptLimit) leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = slices.DeleteFunc(l.conns, func(c net.Conn) bool { return c == conn })
}
