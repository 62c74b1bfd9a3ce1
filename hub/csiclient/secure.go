package csiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// firstBytesTimeout bounds the wait for the first bytes of the server after the TLS
// handshake. In TLS 1.3 they show whether the server accepted our certificate. Without them
// the connection is used nevertheless: some servers wait until the client sends first.
const firstBytesTimeout = time.Second

// loadMaterial reads the files; it returns nil without TLS. It fails if the files are not whole, or if our
// certificate is not valid now.
func loadMaterial(t registry.TLS) (*tlsfiles.Material, error) {
	if !t.Enabled() {
		return nil, nil
	}
	material, err := tlsfiles.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile}.Load()
	if err == nil {
		err = material.CheckTime(time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("read the TLS files of this side: %w", err)
	}
	return material, nil
}

// Certificates makes a TLS handshake with the driver's side on a connection of its own, and returns the certificates of both
// sides. The driver must have TLS. Its errors are those of Connect.
func Certificates(ctx context.Context, d registry.Driver) (own, server *x509.Certificate, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	material, err := loadMaterial(d.TLS)
	if err != nil {
		return nil, nil, err
	}
	raw, err := connectRaw(ctx, d.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	defer raw.Close()
	conn, err := secure(ctx, raw, d.TLS, material)
	if err != nil {
		return nil, nil, fmt.Errorf("speak TLS with %s: %w", d.Endpoint, err)
	}
	return material.Certificate.Leaf, conn.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil // secure has made it
}

// secure makes a mutual TLS handshake on a connection. Its error says which side must
// change what. It leaves the connection open if it fails.
func secure(ctx context.Context, raw net.Conn, t registry.TLS, m *tlsfiles.Material) (*connection, error) {
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    m.CAs,
		ServerName: t.ServerName,
		NextProtos: []string{"h2"}, // gRPC servers insist
		// Also if the server names other CAs: its error for our certificate says
		// more than its error for none.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.Certificate, nil },
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, whyNoTLS(err, t)
	}
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		return nil, errors.New("the server there does not speak HTTP/2 over TLS (ALPN h2), so that it is no gRPC server")
	}
	c := newConnection(conn)
	err := c.peek(firstBytesTimeout)
	if hungUp(err) {
		return nil, fmt.Errorf("the server there took the TLS handshake and hung up then: if it is a proxy, it may be full or not reach the driver, its log says so: %w", err)
	}
	return c, whyNoTLS(err, t)
}

// whyNoTLS adds the necessary change to an error of the handshake, or of the first read after
// it.
func whyNoTLS(err error, t registry.TLS) error {
	if verification, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%s: %w", whyUntrusted(verification, t), err)
	}
	if alert, ok := remoteAlert(err); ok {
		return fmt.Errorf("%s: %w", whyRefused(alert, t), err)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fmt.Errorf("what listens there speaks plain text and no TLS: correct the endpoint, or have the driver's side speak TLS: %w", err)
	}
	if hungUp(err) {
		return fmt.Errorf("the server there hung up in the middle of the TLS handshake: it may speak no TLS, or not take the client certificate in %s: %w", t.CertFile, err)
	}
	return err
}

// whyUntrusted names what is wrong with the certificate of the server.
func whyUntrusted(err *tls.CertificateVerificationError, t registry.TLS) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("the certificate of the server is not for serverName %q: correct one of them", t.ServerName)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "the certificate of the server has expired, or is not valid yet: renew it"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		leaf := err.UnverifiedCertificates[0]
		return fmt.Sprintf("the certificate of the server, issued by %q, is signed by no CA in %s: correct the file or the certificate",
			leaf.Issuer.String(), t.CAFile)
	}
	return "the certificate of the server cannot be trusted"
}

// remoteAlert returns the text of a TLS alert that the server sent.
func remoteAlert(err error) (string, bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return "", false
	}
	return strings.TrimPrefix(op.Err.Error(), "tls: "), true
}

// whyRefused explains an alert of the server.
func whyRefused(alert string, t registry.TLS) string {
	switch alert {
	case "unknown certificate authority":
		return fmt.Sprintf("the server refuses the client certificate in %s, it does not know the CA that signed it: correct the file, or --client-ca of the proxy there", t.CertFile)
	case "expired certificate":
		return fmt.Sprintf("the server refuses the client certificate in %s, it has expired: renew it", t.CertFile)
	case "bad certificate", "unsupported certificate", "revoked certificate", "unknown certificate", "certificate required", "access denied":
		return fmt.Sprintf("the server refuses the client certificate in %s: correct its names, or --allow-san and --client-ca of the proxy there, whose log has the reason", t.CertFile)
	case "protocol version not supported":
		return "the server does not speak TLS 1.3"
	case "no application protocol":
		return "the server does not speak HTTP/2 over TLS (ALPN h2), so that it is no gRPC server"
	}
	return "the server ended the TLS handshake"
}

// whyNoGRPC explains why gRPC did not become ready on a connection.
func whyNoGRPC(d registry.Driver, conn *connection, err error) error {
	first := conn.first.Load()
	switch {
	case !errors.Is(err, errNoGRPC) || first == nil:
		return err
	case d.TLS.Enabled():
		return fmt.Errorf("%w: %w", err, whyNoTLS(*first, d.TLS))
	case hungUp(*first) && d.Endpoint.Network() == "tcp":
		return fmt.Errorf("%w: it hangs up on plain text; if it speaks TLS, give the driver tls", err)
	}
	return err
}

// followFiles ends the Session when its TLS files have been replaced by others with which
// the driver can be reached: the owner then connects with the new files. Calls in flight
// finish on the old connection. Files that are not whole, or that the driver's side refuses,
// change nothing. But if the driver's certificate is not signed by a CA in the new files, the
// Session ends in any case: it would still send secrets to that driver. followFiles returns
// when the Session is done.
func (s *Session) followFiles(d registry.Driver, used *tlsfiles.Material, ticks <-chan time.Time) {
	var problem loglimit.Problem
	for {
		select {
		case <-s.ended.Done():
			return
		case <-ticks:
		}
		next, err := used.Reload()
		if next == nil && err == nil {
			continue
		}
		if err == nil {
			err = s.try(d, next)
		}
		if _, untrusted := errors.AsType[x509.UnknownAuthorityError](err); err == nil || untrusted {
			s.Close()
			return
		}
		if s.ended.Err() == nil && problem.IsDue(err.Error(), time.Now()) {
			klog.FromContext(s.ended).Info("Cannot use the new TLS files; the connection to the driver keeps the previous ones", "endpoint", d.Endpoint, "err", err)
		}
	}
}

// try connects to the driver with new TLS material. It does not outlive the Session.
func (s *Session) try(d registry.Driver, next *tlsfiles.Material) error {
	tried, err := dial(s.ended, d, next, nil)
	if err != nil { // first: a driver that is not trusted matters more than an own certificate that is not valid
		return err
	}
	tried.Close()
	return next.CheckTime(time.Now())
}
