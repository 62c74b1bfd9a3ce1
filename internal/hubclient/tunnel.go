package hubclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// maxTunnelError bounds what is read of a kubelet's error, in bytes.
const maxTunnelError = 4 << 10

// tunnel opens connections to a port of a Pod through the API server, like client-go's PortForwarder but without a
// listener, which other users of this machine could connect to, and with the kubelet's error.
type tunnel struct {
	config *rest.Config
	target *url.URL // the Pod's portforward
	port   string
}

// dial is a DialContext that connects to the Pod's port, whatever the address: over a WebSocket, which passes proxies,
// or over SPDY, which older API servers speak. Client-go's dialers take no context: the HTTP client leaves a dial that
// takes too long to itself.
func (t tunnel) dial(context.Context, string, string) (net.Conn, error) {
	socket, socketErr := portforward.NewSPDYOverWebsocketDialerForStreaming(t.target, t.config)
	transport, upgrader, err := spdy.RoundTripperFor(t.config)
	if err := errors.Join(socketErr, err); err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, t.target)
	stream, _, err := portforward.NewFallbackDialerForStreaming(socket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}).Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	headers := http.Header{corev1.PortHeader: {t.port}, corev1.PortForwardRequestIDHeader: {"0"}, corev1.StreamType: {corev1.StreamTypeError}}
	problems, problemsErr := stream.CreateStream(headers)
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := stream.CreateStream(headers)
	if err := errors.Join(problemsErr, err); err != nil {
		stream.Close()
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	problems.Close() // closes this side: nothing is written to it
	near, far := net.Pipe()
	c := &tunnelled{Conn: near}
	problem := make(chan error, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(problems, maxTunnelError))
		if len(text) > 0 {
			problem <- fmt.Errorf("port-forward: %s", text)
			_ = data.Reset() // no data will come
		}
		close(problem)
	}()
	go func() {
		_, _ = io.Copy(far, data)
		if err := <-problem; err != nil { // the two streams end together
			c.problem.Store(&err)
		}
		far.Close()
	}()
	go func() {
		_, _ = io.Copy(data, far)
		stream.Close()
	}()
	return c, nil
}

// tunnelled is the near end of a connection to a Pod.
type tunnelled struct {
	net.Conn
	problem atomic.Pointer[error] // the error of the Pod's end; nil: there is none. Set before the connection ends
}

func (c *tunnelled) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.because(err)
}

func (c *tunnelled) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.because(err)
}

// because returns the error of the Pod's end in place of one that it has caused.
func (c *tunnelled) because(err error) error {
	if p := c.problem.Load(); p != nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe)) {
		return *p
	}
	return err
}
