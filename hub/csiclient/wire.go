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

// wire is the connection that gRPC speaks on. It keeps how the first reading ended,
// which gRPC does not tell, and tells of the end of the connection, which gRPC tells only
// a goroutine that waits for it.
type wire struct {
	net.Conn
	departures departures

	mu     sync.Mutex
	begun  bool   // something arrived, or reading failed; guarded by mu
	first  error  // of reading, if nothing ever arrived; guarded by mu
	peeked []byte // that has arrived and was not read; guarded by mu
	over   bool   // no further call can be made; guarded by mu
	tell   func() // that it is over; nil: nobody; guarded by mu

	received frames // belongs to whoever reads, which is one goroutine
}

func newWire(conn net.Conn) *wire { return &wire{Conn: conn, received: frames{begun: true}} }

// onEnd calls f when no further call can be made, also if that is so already: the
// connection is closed, reading from it has failed, or the other side asks to go away. It
// may be called with the connection in use, so f must not block.
func (w *wire) onEnd(f func()) {
	w.mu.Lock()
	w.tell = f
	over := w.over
	w.mu.Unlock()
	if over {
		f()
	}
}

// end notes that it is over.
func (w *wire) end() {
	w.mu.Lock()
	tell := w.tell
	if w.over {
		tell = nil
	}
	w.over = true
	w.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// Close implements net.Conn.
func (w *wire) Close() error {
	defer w.end()
	return w.Conn.Close()
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	n := w.replay(b)
	var err error
	if n == 0 {
		n, err = w.Conn.Read(b)
		w.note(n, err)
	}
	if w.received.count(b[:n], typeGoAway) > 0 || err != nil {
		w.end()
	}
	return n, err
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	if err := w.departures.check(b); err != nil {
		// gRPC leaves a connection that cannot be written to open for reading.
		return 0, errors.Join(err, w.Conn.Close())
	}
	return w.Conn.Write(b)
}

func (w *wire) replay(b []byte) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := copy(b, w.peeked)
	w.peeked = w.peeked[n:]
	return n
}

func (w *wire) note(n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begun && (n > 0 || err != nil) {
		w.begun = true
		if n == 0 {
			w.first = err
		}
	}
}

// failure returns why nothing arrived, nil if something did or may still.
func (w *wire) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first
}

// peek waits for the first bytes, not longer than patience. It returns the error of
// reading; that nothing arrived yet is none.
func (w *wire) peek(ctx context.Context, patience time.Duration) error {
	if err := w.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { _ = w.SetReadDeadline(time.Unix(1, 0)) })
	b := make([]byte, 512)
	n, err := w.Conn.Read(b)
	if !release() {
		return ctx.Err()
	}
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	if err != nil && n == 0 {
		return err
	}
	w.mu.Lock()
	w.peeked = b[:n]
	w.begun = n > 0
	w.mu.Unlock()
	return w.SetReadDeadline(time.Time{})
}

// plain is the security of a connection without TLS.
func plain() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

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

// hungUp says whether the other side just ended the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err)
}
