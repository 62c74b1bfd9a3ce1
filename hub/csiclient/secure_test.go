package csiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const serverName = "driver.storage.svc"

// parties are both sides of mutual TLS.
type parties struct {
	driverCA, hubCA *certtest.Authority
	dir             string // of the hub's files
	files           registry.TLS
}

func newParties(t *testing.T) *parties {
	t.Helper()
	p := &parties{driverCA: certtest.NewAuthority(t, "driver CA"), hubCA: certtest.NewAuthority(t, "hub CA"), dir: t.TempDir()}
	p.write(t, p.driverCA, p.hubCA.Issue(certtest.Request{Names: []string{"hub"}}))
	return p
}

// write replaces the hub's files.
func (p *parties) write(t *testing.T, trusted *certtest.Authority, own certtest.Pair) {
	t.Helper()
	f := certtest.Write(t, p.dir, trusted, own)
	p.files = registry.TLS{CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: serverName}
}

// serverTLS is how the driver's side is set up if all is well.
func (p *parties) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{p.driverCA.Issue(certtest.Request{Names: []string{serverName}}).TLS()},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    p.hubCA.Pool(),
	}
}

// startTCPDriver serves a driver on loopback, with TLS unless config is nil.
func startTCPDriver(t *testing.T, config *tls.Config) driver {
	t.Helper()
	backend, err := fakecsi.New(fakecsi.Options{Name: driverName, VendorVersion: "1.2.3"})
	must(t, err)
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: "tcp://127.0.0.1:0", TLS: config})
	must(t, err)
	must(t, server.Start())
	t.Cleanup(server.Crash)
	return driver{Backend: backend, server: server, endpoint: registry.Endpoint(server.Endpoint())}
}

func secured(endpoint registry.Endpoint, t registry.TLS) registry.Driver {
	return registry.Driver{Name: driverName, Endpoint: endpoint, TLS: t}
}

// assertNoCall checks that nothing of what the hub knows has arrived.
func assertNoCall(t *testing.T, d driver) {
	t.Helper()
	for method, book := range d.Books().Methods {
		if book.Begun > 0 {
			t.Errorf("%d %s calls arrived", book.Begun, method)
		}
	}
}

func TestDriverIsReachedOverTCP(t *testing.T) {
	p := newParties(t)
	for name, d := range map[string]struct {
		driver
		tls registry.TLS
	}{
		"plain text on loopback": {startTCPDriver(t, nil), registry.TLS{}},
		"mutual TLS":             {startTCPDriver(t, p.serverTLS()), p.files},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			s, err := Connect(ctx, secured(d.endpoint, d.tls), nil)
			must(t, err)
			defer s.Close()
			if err := <-publish(ctx, s, "v"); err != nil {
				t.Error(err)
			}
			if got := s.Info().Version; got != "1.2.3" {
				t.Errorf("version %q", got)
			}
		})
	}
}

// What a wrong set-up tells the operator. Nothing is sent to the driver in any case.
func TestRefusedTLSSaysWhichSideHasToChangeWhat(t *testing.T) {
	past := time.Now().Add(-time.Minute)
	server := func(c *tls.Config, by *certtest.Authority, r certtest.Request) {
		c.Certificates = []tls.Certificate{by.Issue(r).TLS()}
	}
	for name, test := range map[string]struct {
		spoil func(p *parties, c *tls.Config) // the hub's files, and the server's side
		want  []string                        // CA, CERT and KEY are the hub's files
	}{
		"the driver's certificate comes from another authority": {func(p *parties, c *tls.Config) { server(c, p.hubCA, certtest.Request{Names: []string{serverName}}) },
			[]string{`issued by "CN=hub CA"`, "is signed by no CA in CA"}},
		"the driver has another name": {func(p *parties, c *tls.Config) {
			server(c, p.driverCA, certtest.Request{Names: []string{"other.svc", "10.1.2.3"}})
		},
			[]string{`not for serverName "driver.storage.svc"`, "valid for other.svc"}},
		"the driver's certificate has expired": {func(p *parties, c *tls.Config) {
			server(c, p.driverCA, certtest.Request{Names: []string{serverName}, To: past})
		},
			[]string{"the certificate of the server has expired", "is after " + past.UTC().Format("2006-01-02T15:04:")}},
		"our certificate has expired": {func(p *parties, _ *tls.Config) { p.write(t, p.driverCA, p.hubCA.Issue(certtest.Request{To: past})) },
			[]string{"TLS files of this side", "the certificate in CERT expired at"}},
		"our certificate comes from another authority": {func(p *parties, _ *tls.Config) { p.write(t, p.driverCA, p.driverCA.Issue(certtest.Request{})) },
			[]string{"the server refuses the client certificate in CERT", "does not know the CA", "--client-ca of the proxy"}},
		"our certificate is not to the driver's taste": {func(_ *parties, c *tls.Config) {
			c.VerifyConnection = func(tls.ConnectionState) error { return errors.New("not this one") }
		}, []string{"the server refuses the client certificate in CERT", "--allow-san and --client-ca of the proxy", "bad certificate"}},
		"a key that belongs to another certificate": {func(p *parties, _ *tls.Config) {
			certtest.WriteFile(t, p.files.KeyFile, p.hubCA.Issue(certtest.Request{}).KeyPEM)
		}, []string{"KEY", "private key does not match"}},
		"plain text where TLS is expected": {nil, []string{"speaks plain text and no TLS"}},
		"nothing newer than TLS 1.2":       {func(_ *parties, c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, []string{"the server does not speak TLS 1.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParties(t)
			config := p.serverTLS()
			if test.spoil == nil {
				config = nil
			} else {
				test.spoil(p, config)
			}
			d := startTCPDriver(t, config)
			_, err := Connect(testContext(t), secured(d.endpoint, p.files), nil)
			if err == nil {
				t.Fatal("connected")
			}
			_, _, refused := Certificates(testContext(t), secured(d.endpoint, p.files))
			for i := 0; i < 10 && refused == nil; i++ { // it waits only so long for a server to refuse
				_, _, refused = Certificates(testContext(t), secured(d.endpoint, p.files))
			}
			for _, want := range test.want {
				want = strings.NewReplacer("in CA", "in "+p.files.CAFile, "CERT", p.files.CertFile, "KEY", p.files.KeyFile).Replace(want)
				if !strings.Contains(err.Error(), want) || refused == nil || !strings.Contains(refused.Error(), want) {
					t.Errorf("%q or %q does not say %q", err, refused, want)
				}
			}
			assertNoCall(t, d)
		})
	}
}

func TestCertificatesAreThoseOfBothSides(t *testing.T) {
	p := newParties(t)
	d := startTCPDriver(t, p.serverTLS())
	own, server, err := Certificates(testContext(t), secured(d.endpoint, p.files))
	if err != nil || own == nil || len(server.DNSNames) != 1 || server.DNSNames[0] != serverName || own.Equal(server) {
		t.Errorf("got %v and %v, %v", own, server, err)
	}
	assertNoCall(t, d)
}

func TestServerWithoutHTTP2IsNoGRPCServer(t *testing.T) {
	p := newParties(t)
	listener := listenTLS(t, p.serverTLS(), func(conn *tls.Conn) { _ = conn.Handshake() })
	_, err := Connect(testContext(t), secured(listener, p.files), nil)
	if err == nil || !strings.Contains(err.Error(), "does not speak HTTP/2 over TLS") {
		t.Errorf("got %v", err)
	}
}

func TestServerThatWaitsForTheClientToSpeakIsNoError(t *testing.T) {
	p := newParties(t)
	config := p.serverTLS()
	config.NextProtos = []string{"h2"}
	spoke := make(chan string, 1)
	listener := listenTLS(t, config, func(conn *tls.Conn) {
		b := make([]byte, 3)
		_, _ = conn.Read(b)
		spoke <- string(b)
	})
	ctx, cancel := context.WithCancel(testContext(t))
	failed := make(chan error, 1)
	go func() {
		_, err := Connect(ctx, secured(listener, p.files), nil)
		failed <- err
	}()
	if got := <-spoke; got != "PRI" {
		t.Errorf("the client said %q, want the beginning of HTTP/2", got)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "hung up") {
		t.Errorf("got %v", err)
	}
}

// listenTLS gives each connection to loopback, one after the other, to serve and
// closes it then.
func listenTLS(t *testing.T, config *tls.Config, serve func(*tls.Conn)) registry.Endpoint {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(tls.Server(conn, config))
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return registry.Endpoint("tcp://" + listener.Addr().String())
}

func TestPlainTextToAServerWithTLSSaysSo(t *testing.T) {
	d := startTCPDriver(t, newParties(t).serverTLS())
	_, err := Connect(testContext(t), at(d.endpoint), nil)
	if err == nil || !strings.Contains(err.Error(), "hangs up on plain text; if it speaks TLS, give the driver tls") {
		t.Errorf("got %v", err)
	}
	assertNoCall(t, d)
}

func TestPlainTextToAnotherMachineIsNeverTried(t *testing.T) {
	d := registry.Driver{Name: driverName, Endpoint: "tcp://192.0.2.1:9443"} // an address of nobody
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, d, nil); err == nil || !strings.Contains(err.Error(), "would carry secrets in plain text") {
		t.Errorf("got %v", err)
	}
	d.Insecure = true
	if _, err := Connect(ctx, d, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("insecure: got %v, want it to be tried", err)
	}
}

func TestWhatKeepsFromDiallingIsNamed(t *testing.T) {
	p := newParties(t)
	closed := startTCPDriver(t, nil)
	closed.server.Crash()
	if _, err := Connect(testContext(t), secured(closed.endpoint, p.files), nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: got %v", err)
	}
	_, err := Connect(testContext(t), secured("tcp://nobody.invalid:1", p.files), nil)
	if dns, ok := errors.AsType[*net.DNSError](err); !ok || dns.Name != "nobody.invalid" {
		t.Errorf("no such host: got %v", err)
	}
	missing := p.files
	missing.CertFile = filepath.Join(t.TempDir(), "none.crt")
	if _, err := Connect(testContext(t), secured(closed.endpoint, missing), nil); err == nil || !strings.Contains(err.Error(), "there is no file "+missing.CertFile) {
		t.Errorf("no certificate: got %v", err)
	}
}

func TestAuthorityIsTheNameOfTheServer(t *testing.T) {
	for _, test := range []struct{ endpoint, serverName, want string }{
		{"unix:///csi.sock", "", "localhost"},
		{"tcp://127.0.0.1:1", "", "127.0.0.1"},
		{"tcp://[::1]:1", "", "[::1]"},
		{"tcp://csi:1", serverName, serverName},
	} {
		d := secured(registry.Endpoint(test.endpoint), registry.TLS{ServerName: test.serverName})
		if got := authority(d); got != test.want {
			t.Errorf("%s: got %s, want %s", test.endpoint, got, test.want)
		}
	}
}

// Names that package tls gives its alerts are no API: this fails if one changes.
func TestAlertsAreKnownByTheirWords(t *testing.T) {
	for code, words := range map[uint8]string{
		42: "bad certificate", 43: "unsupported certificate", 44: "revoked certificate", 45: "expired certificate",
		46: "unknown certificate", 48: "unknown certificate authority", 49: "access denied", 70: "protocol version not supported",
		116: "certificate required", 120: "no application protocol",
	} {
		if got := strings.TrimPrefix(tls.AlertError(code).Error(), "tls: "); got != words {
			t.Errorf("alert %d is %q, not %q", code, got, words)
		}
		if got := whyRefused(words, registry.TLS{}); got == whyRefused("", registry.TLS{}) {
			t.Errorf("%q says nothing", words)
		}
	}
}

func TestServerThatHangsUpInTheHandshakeIsDescribed(t *testing.T) {
	for _, err := range []error{fmt.Errorf("read: %w", syscall.ECONNRESET), net.ErrClosed, &tls.CertificateVerificationError{
		UnverifiedCertificates: []*x509.Certificate{{}}, Err: errors.New("odd")}} {
		got := whyNoTLS(err, registry.TLS{CertFile: "/tls.crt"})
		if !errors.Is(got, err) {
			t.Errorf("%v lost its cause %v", got, err)
		}
	}
}
