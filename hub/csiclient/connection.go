package csiclient

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// connection is a net.Conn for gRPC. It keeps the error of the first read, which gRPC does
// not report, and asks the sendGuard before each write.
type connection struct {
	net.Conn
	guard *sendGuard

	mu     sync.Mutex
	begun  bool   // the first read has ended; guarded by mu
	first  error  // of the first read, if no byte arrived; guarded by mu
	peeked []byte // bytes that peek has read and Read has not returned yet; guarded by mu
}

func newConnection(conn net.Conn) *connection {
	return &connection{Conn: conn, guard: newSendGuard()}
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	if n := c.replay(b); n > 0 {
		return n, nil
	}
	n, err := c.Conn.Read(b)
	c.note(n, err)
	return n, err
}

// Write implements net.Conn.
func (c *connection) Write(b []byte) (int, error) {
	if err := c.guard.check(b); err != nil {
		// gRPC leaves a connection that cannot be written to open for reading.
		return 0, errors.Join(err, c.Conn.Close())
	}
	return c.Conn.Write(b)
}

func (c *connection) replay(b []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(b, c.peeked)
	c.peeked = c.peeked[n:]
	return n
}

func (c *connection) note(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun && (n > 0 || err != nil) {
		c.begun = true
		if n == 0 {
			c.first = err
		}
	}
}

// failure returns why no byte arrived, nil if one has arrived or may still arrive.
func (c *connection) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// peek waits for the first bytes for at most timeout. It returns the error of the read,
// and nil if no byte has arrived yet.
func (c *connection) peek(ctx context.Context, timeout time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	b := make([]byte, 512)
	n, err := c.Conn.Read(b)
	if !release() {
		return ctx.Err()
	}
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	if err != nil && n == 0 {
		return err
	}
	c.mu.Lock()
	c.peeked = b[:n]
	c.begun = n > 0
	c.mu.Unlock()
	return c.SetReadDeadline(time.Time{})
}

// plaintext is the security of a connection without TLS.
func plaintext() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

// handshaken are the credentials of one connection whose TLS handshake is done.
type handshaken struct{ state tls.ConnectionState }

// ClientHandshake implements credentials.TransportCredentials. The handshake is done already.
func (h handshaken) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, credentials.TLSInfo{
		State:          h.state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// ServerHandshake implements credentials.TransportCredentials. It is not for clients.
func (h handshaken) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.ErrUnsupported
}

// Info implements credentials.TransportCredentials.
func (h handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

// OverrideServerName implements credentials.TransportCredentials. The name is checked already.
func (h handshaken) OverrideServerName(string) error { return errors.ErrUnsupported }

// hungUp reports whether the other side ended the connection without a reason.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err)
}
