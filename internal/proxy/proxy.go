package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/connlimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

const (
	// maxConnections bounds the clients, the connections in the TLS handshake, and those of the health port.
	maxConnections = 100
	// verifyInterval is the longest time between two checks of a client's certificate: another certificate of its chain
	// may expire, or the clock be set. logInterval is the shortest time between two log lines with the same message.
	handshakeTimeout, verifyInterval, logInterval = 10 * time.Second, time.Minute, 10 * time.Second
)

// Proxy forwards the calls of clients with mutual TLS to a unix socket.
type Proxy struct {
	options                     Options
	files                       atomic.Pointer[tlsfiles.Material]
	ticks                       <-chan time.Time // to read the files
	handshakes, clients, health connlimit.Limit
	driver                      *http.Transport
	refusals                    *loglimit.Limiter
	probeInterval               time.Duration
	healthTimeout               time.Duration // to read a request to the health port, and to answer it

	mu      sync.Mutex
	problem loglimit.Problem // of the socket; guarded by mu
}

// Options of a Proxy. All are required.
type Options struct {
	// Target is the path of the driver's unix socket.
	Target string
	// Files are the certificate and key of the port, and the CAs of the clients' certificates.
	Files tlsfiles.Files
	// AllowedSANs are domain names, and URIs (with "://" in them). A client's certificate must have one of them.
	AllowedSANs []string
	// Grace is how long the calls of a client may go on that was asked to go.
	Grace time.Duration
}

// New reads the files. It starts nothing.
func New(o Options) (*Proxy, error) {
	material, err := o.Files.Load()
	if err != nil {
		return nil, err
	}
	p := &Proxy{options: o, ticks: time.Tick(tlsfiles.Interval), refusals: loglimit.New(1, logInterval), probeInterval: 5 * time.Second, healthTimeout: 2 * time.Second,
		handshakes: connlimit.Limit{Most: maxConnections}, clients: connlimit.Limit{Most: maxConnections}, health: connlimit.Limit{Most: maxConnections}}
	p.driver = p.newTransport()
	p.files.Store(material)
	return p, nil
}

// Serve accepts clients from a TCP listener, which it closes, until ctx ends. Then it asks the clients to go, cuts off
// what is left after the grace, and returns. A driver that cannot be reached or broken files do not end it.
func (p *Proxy) Serve(ctx context.Context, listener net.Listener) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { tlsfiles.Follow(ctx, p.files.Load(), p.ticks, p.files.Store) })
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for ctx.Err() == nil {
		conn, err := listener.Accept()
		if err != nil {
			time.Sleep(100 * time.Millisecond) // there may be too many open files
			continue
		}
		p.handshakes.Add(conn)
		running.Go(func() { p.serve(ctx, conn) })
	}
	klog.FromContext(ctx).Info("Taking no more clients, letting calls end", "grace", p.options.Grace)
}

// serve forwards one client to the socket until one of the connections ends, or ctx ends and the grace is over.
func (p *Proxy) serve(ctx context.Context, raw net.Conn) {
	defer raw.Close()
	logger := klog.FromContext(ctx).WithValues("client", raw.RemoteAddr())
	conn := tls.Server(raw, p.config())
	handshake, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	err := conn.HandshakeContext(handshake)
	p.handshakes.Remove(raw)
	if err != nil {
		if !errors.Is(err, io.EOF) { // a probe of the port connects and disconnects
			p.refusals.Info(logger, "Refused a client in the TLS handshake", "problem", err)
		}
		return
	}
	p.clients.Add(raw)
	defer p.clients.Remove(raw)
	chain := conn.ConnectionState().PeerCertificates
	logger = logger.WithValues("names", fmt.Sprint(chain[0].DNSNames, chain[0].URIs))
	logger.Info("A client is connected")
	// Calls outlive ctx: after a call that was cut off it is not known whether the volume is attached.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { end(errors.New("the proxy stops")) })()
	c := &calls{end: end, logger: logger, refusals: p.refusals}
	if c.driver, c.problem = p.driver.NewClientConn(life, "http", "localhost:80"); c.problem == nil {
		defer c.driver.Close()
		c.driver.SetStateHook(func(d *http.ClientConn) {
			if d.Err() != nil {
				end(errDriverEnded)
			}
		})
	}
	// A server of its own can ask this client alone to go.
	server := &http.Server{Handler: c, MaxHeaderBytes: maxHeaders, HTTP2: &limits, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			end(errors.New("the client has ended the connection"))
		}
	}}
	defer server.Close()
	only := make(single, 1)
	only <- conn
	go func() { _ = server.Serve(only) }()
	if err := p.verify(life, chain); err != nil {
		end(err)
		raw.Close()
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.options.Grace)
	defer cancel()
	logger.Info("A client is gone", "because", context.Cause(life), "remaining", server.Shutdown(grace))
}

// verify blocks until life ends. It returns an error as soon as the certificate of the client is not accepted any more.
func (p *Proxy) verify(life context.Context, chain []*x509.Certificate) error {
	for {
		files := p.files.Load()
		if err := files.VerifyClient(chain); err != nil {
			return fmt.Errorf("its certificate is not accepted any more: %w", err)
		}
		select {
		case <-life.Done():
			return nil
		case <-files.Replaced():
		case <-time.After(min(time.Until(chain[0].NotAfter)+time.Millisecond, verifyInterval)): // it is valid until then, and then no more
		}
	}
}

// config returns what a client needs to connect. It refuses clients within the handshake, so that they learn of it.
func (p *Proxy) config() *tls.Config {
	files := p.files.Load()
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{files.Certificate}, NextProtos: []string{"h2"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: files.CAs, VerifyConnection: p.admit,
		SessionTicketsDisabled: true} // a ticket would admit a client whose certificate is not accepted any more
}

// admit checks the names of a client. It ignores the case of domain names, but not of URIs, and gives wildcards no meaning.
func (p *Proxy) admit(s tls.ConnectionState) error {
	if s.NegotiatedProtocol != "h2" {
		return errors.New("the client does not speak HTTP/2 over TLS (ALPN h2)")
	}
	c := s.PeerCertificates[0]
	for _, allowed := range p.options.AllowedSANs {
		if slices.ContainsFunc(c.DNSNames, func(name string) bool { return strings.EqualFold(name, allowed) }) ||
			slices.ContainsFunc(c.URIs, func(uri *url.URL) bool { return uri.String() == allowed }) {
			return nil
		}
	}
	return fmt.Errorf("the certificate of the client is for %v %v and for none of the allowed names %v", c.DNSNames, c.URIs, p.options.AllowedSANs)
}

// single is a listener of one connection.
type single chan net.Conn

func (s single) Accept() (net.Conn, error) {
	if conn, ok := <-s; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (s single) Close() error   { close(s); return nil }
func (s single) Addr() net.Addr { return &net.TCPAddr{} }
