// Package connlimit bounds the open connections of a port to which anyone may connect.
package connlimit

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// Limit bounds connections. Above Most, the oldest connection of the address that has most is closed: a client that only
// connects cannot keep out others. Its methods are safe for concurrent use.
type Limit struct {
	Most int

	mu   sync.Mutex
	open []net.Conn // oldest first; guarded by mu
}

// Add adds a connection, and closes one if there are too many.
func (l *Limit) Add(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, conn)
	if len(l.open) > l.Most {
		l.surplus().Close()
	}
}

// Remove removes a connection that has ended.
func (l *Limit) Remove(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(c net.Conn) bool { return c == conn })
}

// Follow is the ConnState of an http.Server.
func (l *Limit) Follow(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		l.Add(conn)
	case http.StateClosed, http.StateHijacked:
		l.Remove(conn)
	}
}

// surplus removes the oldest connection of the address that has most connections. The caller holds mu.
func (l *Limit) surplus() net.Conn {
	count, first := map[string]int{}, 0
	for _, conn := range l.open {
		count[address(conn)]++
	}
	for i, conn := range l.open {
		if count[address(conn)] > count[address(l.open[first])] {
			first = i
		}
	}
	conn := l.open[first]
	l.open = slices.Delete(l.open, first, first+1)
	return conn
}

func address(conn net.Conn) string {
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	return host
}
