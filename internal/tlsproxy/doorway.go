package tlsproxy

import (
	"net"
	"slices"
	"sync"
)

// doorway holds those that are in the TLS handshake. When it is full, the next one
// takes the place of the one that is in it longest: whoever connects and says nothing
// cannot keep out those that have a certificate, which are through in no time.
type doorway struct {
	room int

	mu  sync.Mutex
	all []net.Conn // in order of arrival; guarded by mu
}

// enter takes a place. It returns who has to leave for it, nil if nobody has.
func (d *doorway) enter(conn net.Conn) (oldest net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.all) == d.room {
		oldest = d.all[0]
		d.all = slices.Delete(d.all, 0, 1)
	}
	d.all = append(d.all, conn)
	return oldest
}

// leave gives the place back, if it is still the connection's.
func (d *doorway) leave(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := slices.Index(d.all, conn); at >= 0 {
		d.all = slices.Delete(d.all, at, at+1)
	}
}
