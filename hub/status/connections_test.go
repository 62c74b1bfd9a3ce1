package status

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
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
	l := newConnections(4)
	var conns []*fakeConn
	connect := func(remote string) {
		conns = append(conns, &fakeConn{remote: remote})
		l.follow(conns[len(conns)-1], http.StateNew)
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
	l.follow(conns[1], http.StateClosed) // one that has made room already
	l.follow(conns[4], http.StateActive)
	l.follow(conns[4], http.StateClosed)
	connect("10.0.0.3")
	closed("after an end", 1, 2, 3, 5)
}

func TestConnectionsEndWithTheAnswerOfAProbe(t *testing.T) {
	url := startServer(t, newFakeHub())
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("got %s, close %v, %v", response.Status, response.Close, err)
	}
	if _, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection stays: %v", err)
	}
}
