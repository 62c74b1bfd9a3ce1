package status

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

type fakeConn struct {
	net.Conn
	closed bool
}

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

func TestConnectionsThatWaitMakeRoomBeforeThoseWithARequest(t *testing.T) {
	var conns [7]fakeConn
	l := newConnections(4)
	set := func(state http.ConnState, which ...int) {
		for _, i := range which {
			l.follow(&conns[i], state)
		}
	}
	closed := func(when string, want ...int) {
		t.Helper()
		for i := range conns {
			if conns[i].closed != slices.Contains(want, i) {
				t.Errorf("%s: connection %d: closed %v", when, i, conns[i].closed)
			}
		}
	}
	set(http.StateNew, 0, 1, 2, 3)
	set(http.StateActive, 0, 1)
	set(http.StateIdle, 1) // waits, but not for as long as 2 and 3
	closed("at the limit")
	set(http.StateNew, 4)
	closed("above the limit", 2)
	set(http.StateActive, 2) // too late
	set(http.StateClosed, 2)
	set(http.StateActive, 1, 3, 4)
	set(http.StateNew, 5)
	closed("all have requests", 0, 2)
	set(http.StateClosed, 1)
	set(http.StateNew, 6)
	closed("after an end", 0, 2)
}

// A bystander needs no token to connect. Each connection takes memory.
func TestConnectionsOfABystanderAreBoundedAndKeepNobodyOut(t *testing.T) {
	for name, files := range map[string]TLS{"http": {}, "https": {SelfSigned: true}} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub()
			s, err := New(Options{Endpoint: "127.0.0.1:0", Source: h, Metrics: h.metrics, TLS: files})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Listen(t.Context()); err != nil {
				t.Fatal(err)
			}
			server := s.httpServer(t.Context())
			server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout = 0, 0, 0 // no connection ends because it is too old
			served := make(chan error, 1)
			go func() { served <- s.serve(server) }()
			t.Cleanup(func() { server.Close(); <-served })
			idle := make([]net.Conn, 2000)
			for i := range idle {
				if idle[i], err = net.Dial("tcp", s.Addr().String()); err != nil {
					t.Fatal(err)
				}
				defer idle[i].Close()
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
			for _, path := range []string{"/livez", "/metrics"} {
				response, err := client.Get(name + "://" + s.Addr().String() + path)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if response.StatusCode != http.StatusOK {
					t.Errorf("%s: %d", path, response.StatusCode)
				}
			}
			for i, conn := range idle[:len(idle)-mostConnections] {
				_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("connection %d of %d is open, the last %d may be", i, len(idle), mostConnections)
				}
			}
		})
	}
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
