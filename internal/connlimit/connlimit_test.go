package connlimit

import (
	"net"
	"net/http"
	"slices"
	"testing"
)

type fakeConn struct {
	net.Conn
	remote string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.remote), Port: 1234} }

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

func TestOldestConnectionOfTheAddressThatHasMostMakesRoom(t *testing.T) {
	l := &Limit{Most: 4}
	var conns []*fakeConn
	connect := func(remote string) {
		conns = append(conns, &fakeConn{remote: remote})
		l.Follow(conns[len(conns)-1], http.StateNew)
	}
	closed := func(when string, want ...int) {
		t.Helper()
		for i, c := range conns {
			if c.closed != slices.Contains(want, i) {
				t.Errorf("%s: connection %d: closed %v", when, i, c.closed)
			}
		}
	}
	connect("10.0.0.1") // Prometheus
	for range 3 {
		connect("10.0.0.9")
	}
	closed("at the limit")
	connect("10.0.0.2") // a probe that has not sent its request yet
	closed("above the limit", 1)
	for range 3 {
		connect("10.0.0.9")
	}
	closed("while one address goes on", 1, 2, 3, 5)
	l.Follow(conns[1], http.StateClosed) // one that has made room already
	l.Follow(conns[4], http.StateActive)
	l.Follow(conns[4], http.StateClosed)
	connect("10.0.0.3")
	closed("after an end", 1, 2, 3, 5)
}
