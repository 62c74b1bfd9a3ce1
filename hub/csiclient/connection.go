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

// connection is the one that gRPC uses. It keeps how the first reading ended, which gRPC
// does not report, and asks the sendGuard before it writes.
type connection struct {
	net.Conn
	guard *sendGuard

	mu     sync.Mutex
	begun  bool   // something arrived, or reading failed; guarded by mu
	first  error  // of reading, if nothing ever arrived; guarded by mu
	peeked []byte // that has arrived and was not read; guarded by mu
}

func newConnection(conn net.Conn) *connection { return &connection{Conn: conn, guard: newSendGuard()} }

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

// failure returns why nothing arrived, nil if something did or may still.
func (c *connection) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// peek waits for the first bytes, not longer than timeout. It returns the error of
// reading; that nothing has arrived yet is no error.
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

// handshaken are the credentials of a connection on which TLS is there already. They
// are for one connection.
type handshaken struct{ state tls.ConnectionState }

// ClientHandshake implements credentials.TransportCredentials: it was done.
func (h handshaken) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, credentials.TLSInfo{
		State:          h.state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// ServerHandshake implements credentials.TransportCredentials: this is no server.
func (h handshaken) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.ErrUnsupported
}

// Info implements credentials.TransportCredentials.
func (h handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

// OverrideServerName implements credentials.TransportCredentials: the name was checked.
func (h handshaken) OverrideServerName(string) error { return errors.ErrUnsupported }

// hungUp reports whether the other side just ended the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err)
}
