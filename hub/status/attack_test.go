package status

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// distant is a listener whose connections come to an address that is not loopback.
type distant struct{ net.Listener }

func (l distant) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	_ = conn.(*net.TCPConn).SetWriteBuffer(4 << 10) // what the kernel would hold counts too
	return distantConn{conn}, nil
}

type distantConn struct{ net.Conn }

func (distantConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8080} }

// startDistant serves a hub as other machines reach it, and returns the address.
func startDistant(t *testing.T, h *fakeHub) string {
	t.Helper()
	s, err := Listen(t.Context(), Options{Endpoint: "127.0.0.1:0", Source: h, Metrics: h.metrics, Probes: h.health, Profiling: true})
	if err != nil {
		t.Fatal(err)
	}
	address := s.Addr().String()
	s.listener = distant{s.listener}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return address
}

// attack keeps n connections open until the test ends, each with a request whose answer is not read beyond its first byte. It
// returns when each connection that is answered has that byte.
func attack(t *testing.T, address string, n int, answered bool, request string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var attackers, begun sync.WaitGroup
	t.Cleanup(func() { stop(); attackers.Wait() })
	begun.Add(n)
	for range n {
		attackers.Go(func() {
			first := sync.OnceFunc(begun.Done)
			defer first()
			for ctx.Err() == nil {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
				if err != nil {
					continue
				}
				end := context.AfterFunc(ctx, func() { conn.Close() })
				_ = conn.(*net.TCPConn).SetReadBuffer(1 << 10) // the kernel takes nothing more off the server
				_, _ = io.WriteString(conn, request)
				if !answered {
					first()
				}
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					first()
					<-ctx.Done()
				}
				end()
				conn.Close()
			}
		})
	}
	begun.Wait()
}

// probe requests a path from an address of its own, as a kubelet does.
func probe(address, path string) error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	kubelet := http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	response, err := kubelet.Get("http://" + address + path)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return nil
}

func checkProbes(t *testing.T, address string) {
	t.Helper()
	for range 5 {
		for _, path := range []string{"/livez", "/readyz", "/healthz/leader-election"} {
			if err := probe(address, path); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestRequestsWithABodyThatNeverComesFailNoProbe(t *testing.T) {
	address := startDistant(t, newFakeHub())
	attack(t, address, 520, false, "GET /metrics HTTP/1.1\r\nHost: hub\r\nContent-Length: 100\r\n\r\n")
	checkProbes(t, address)
}

func TestSlowReadersCostNoMemoryAndFailNoProbe(t *testing.T) {
	for _, path := range []string{"/metrics", "/api/v1/attachments?limit=5000"} {
		t.Run(path, func(t *testing.T) {
			address := startDistant(t, newHub(10, 1000))
			before := memoryInUse()
			attack(t, address, 495, true, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: hub\r\n\r\n", 250))
			checkProbes(t, address)
			if used := memoryInUse() - before; used > 64<<20 {
				t.Errorf("the connections take %d MB of memory, want at most 64", used>>20)
			}
		})
	}
}

func memoryInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
