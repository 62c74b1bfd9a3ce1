package hubclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// maxTunnelError bounds what is read of a kubelet's error, in bytes.
const maxTunnelError = 4 << 10

// tunnel opens connections to a port of a Pod through the API server, like kubectl
// port-forward but without a listener, which other users of this machine could connect to.
type tunnel struct {
	config *rest.Config
	target *url.URL // the Pod's portforward
	port   int

	mu     sync.Mutex
	stream httpstream.Connection // nil before the first dial; guarded by mu
	last   int                   // number of the last connection; guarded by mu
}

// dial is a DialContext that connects to the Pod's port, whatever the address.
func (t *tunnel) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	stream, id, err := t.connection(ctx)
	if err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(t.port))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(id))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := stream.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	problems.Close() // closes this side: nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := stream.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	c := &tunnelled{Stream: data, problem: make(chan error, 1)}
	go func() { // ends with the stream, which ends with the tunnel
		text, _ := io.ReadAll(io.LimitReader(problems, maxTunnelError))
		if len(text) > 0 {
			c.problem <- fmt.Errorf("port-forward: %s", text)
			_ = data.Reset() // no data will come
		}
		close(c.problem)
	}()
	return c, nil
}

// connection returns the connection to the API server, and the number of a new stream in it.
func (t *tunnel) connection(ctx context.Context) (httpstream.Connection, int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	if t.stream != nil {
		select {
		case <-t.stream.CloseChan():
		default:
			return t.stream, t.last, nil
		}
	}
	stream, err := t.open(ctx)
	if err != nil {
		return nil, 0, err
	}
	t.stream = stream
	return stream, t.last, nil
}

// open connects over a WebSocket, which passes proxies, or over SPDY, which older API
// servers speak.
func (t *tunnel) open(ctx context.Context) (httpstream.Connection, error) {
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(t.target, t.config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(t.config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, t.target)
	dialer := portforward.NewFallbackDialerForStreaming(socket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	type result struct {
		stream httpstream.Connection
		err    error
	}
	dialled := make(chan result, 1)
	go func() {
		stream, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		dialled <- result{stream, err}
	}()
	select {
	case r := <-dialled:
		return r.stream, r.err
	case <-ctx.Done():
		go func() { // the dialer takes no context
			if r := <-dialled; r.err == nil {
				r.stream.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (t *tunnel) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stream != nil {
		t.stream.Close()
	}
}

// tunnelled is a stream as a net.Conn. It ignores deadlines: the HTTP client closes it instead.
type tunnelled struct {
	httpstream.Stream
	problem chan error // the error of the other end, if any; then closed
}

func (c *tunnelled) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if err == nil || n > 0 {
		return n, nil
	}
	select {
	case problem := <-c.problem:
		if problem != nil {
			return 0, problem
		}
	case <-time.After(time.Second): // the two streams end together
	}
	if errors.Is(err, io.EOF) {
		return 0, io.EOF
	}
	return 0, err
}

// Close ends both directions.
func (c *tunnelled) Close() error { return c.Stream.Reset() }

func (*tunnelled) LocalAddr() net.Addr              { return tunnelAddr{} }
func (*tunnelled) RemoteAddr() net.Addr             { return tunnelAddr{} }
func (*tunnelled) SetDeadline(time.Time) error      { return nil }
func (*tunnelled) SetReadDeadline(time.Time) error  { return nil }
func (*tunnelled) SetWriteDeadline(time.Time) error { return nil }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "portforward" }
func (tunnelAddr) String() string  { return "portforward" }
