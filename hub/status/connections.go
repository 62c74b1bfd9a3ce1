package status

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// mostConnections bounds the connections of a server.
const mostConnections = 500

// connections bounds the open connections. Above the limit, the oldest connection of the address that has most is closed:
// a client that only connects cannot keep out the kubelet and Prometheus.
type connections struct {
	most int

	mu   sync.Mutex
	open []net.Conn // oldest first; guarded by mu
}

func newConnections(most int) *connections { return &connections{most: most} }

// follow is the ConnState of a server.
func (l *connections) follow(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		l.open = append(l.open, conn)
		if len(l.open) > l.most {
			first := l.surplus()
			l.remove(first)
			first.Close()
		}
	case http.StateClosed, http.StateHijacked:
		l.remove(conn)
	}
}

// surplus returns the oldest connection of the address that has most connections. The caller holds mu.
func (l *connections) surplus() net.Conn {
	number := map[string]int{}
	most := 0
	for _, conn := range l.open {
		address := remoteHost(conn)
		number[address]++
		most = max(most, number[address])
	}
	i := slices.IndexFunc(l.open, func(conn net.Conn) bool { return number[remoteHost(conn)] == most })
	return l.open[i]
}

// remove forgets a connection. The caller holds mu.
func (l *connections) remove(conn net.Conn) {
	l.open = slices.DeleteFunc(l.open, func(c net.Conn) bool { return c == conn })
}

func remoteHost(conn net.Conn) string {
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	return host
}
