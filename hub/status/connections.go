package status

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// mostConnections bounds the connections of a server, which take up to 60 KB each with TLS.
const mostConnections = 500

// connections bounds the open connections. At the limit a new connection replaces the oldest
// that waits for a request, else the oldest: somebody who only connects cannot keep out the
// kubelet and Prometheus, whose requests take little time.
type connections struct {
	most int

	mu      sync.Mutex
	changes int                     // of states; guarded by mu
	open    map[net.Conn]connection // guarded by mu
}

type connection struct {
	busy  bool // with a request
	since int  // value of connections.changes
}

// before reports whether a connection makes room before another.
func (c connection) before(other connection) bool {
	if c.busy != other.busy {
		return !c.busy
	}
	return c.since < other.since
}

func newConnections(most int) *connections {
	return &connections{most: most, open: map[net.Conn]connection{}}
}

// follow is the ConnState of a server.
func (l *connections) follow(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(l.open, conn)
		return
	}
	if _, known := l.open[conn]; state != http.StateNew && !known {
		return // it has made room and is being closed
	}
	if state == http.StateNew && len(l.open) >= l.most {
		l.makeRoom()
	}
	l.changes++
	l.open[conn] = connection{busy: state == http.StateActive, since: l.changes}
}

// makeRoom closes a connection. The caller holds mu.
func (l *connections) makeRoom() {
	var first net.Conn
	for conn, c := range l.open {
		if first == nil || c.before(l.open[first]) {
			first = conn
		}
	}
	delete(l.open, first)
	if secure, ok := first.(*tls.Conn); ok {
		first = secure.NetConn() // Close of a tls.Conn waits for a client that does not read
	}
	first.Close()
}
