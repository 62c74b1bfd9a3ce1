package csiclient

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// connection is a net.Conn for gRPC. It keeps the error of the first read, which gRPC does
// not report, and asks the sendGuard before each write.
type connection struct {
	net.Conn
	guard    *sendGuard
	received *bufio.Reader         // of Conn
	begun    bool                  // a byte has arrived; used by Read only, which gRPC calls in one goroutine
	first    atomic.Pointer[error] // of the first read, if no byte arrived
}

func newConnection(conn net.Conn) *connection {
	return &connection{Conn: conn, guard: newSendGuard(), received: bufio.NewReaderSize(conn, 0)} // for peek only: long reads bypass its buffer
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.received.Read(b)
	if c.begun = c.begun || n > 0; !c.begun && err != nil {
		c.first.CompareAndSwap(nil, &err)
	}
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

// peek waits for the first byte for at most timeout. It returns the error of the read,
// and nil if no byte has arrived yet.
func (c *connection) peek(timeout time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := c.received.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return c.SetReadDeadline(time.Time{})
}

// hungUp reports whether the other side ended the connection without a reason.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// handshaken are the credentials of a connection whose TLS handshake is done: gRPC must only know that it is https.
type handshaken struct {
	credentials.TransportCredentials
}

// Info implements credentials.TransportCredentials.
func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (h handshaken) Clone() credentials.TransportCredentials { return h }
