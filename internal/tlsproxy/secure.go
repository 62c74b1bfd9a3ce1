package tlsproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// secure makes the TLS handshake. It returns the connection and the names in the client's
// certificate. The error says why the client was refused.
func (p *Proxy) secure(ctx context.Context, raw net.Conn) (*tls.Conn, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.HandshakeTimeout)
	defer cancel()
	m := p.material.Load()
	conn := tls.Server(raw, &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{m.Certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    m.Authorities,
		NextProtos:   []string{"h2"},
		// A ticket would admit a client whose certificate is not accepted any more.
		SessionTicketsDisabled: true,
		VerifyConnection:       p.verify,
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	return conn, subjectNames(conn.ConnectionState().PeerCertificates[0]), nil
}

// verify refuses a client within the handshake, so that the client learns of it.
func (p *Proxy) verify(state tls.ConnectionState) error {
	if state.NegotiatedProtocol != "h2" {
		return errors.New("the client does not speak HTTP/2 over TLS (ALPN h2)")
	}
	names := subjectNames(state.PeerCertificates[0])
	if !p.allowed(names) {
		return fmt.Errorf("the certificate of the client is for %s and for none of the allowed names %s",
			orNone(names), strings.Join(p.options.AllowedSANs, ", "))
	}
	return nil
}

func (p *Proxy) allowed(names []string) bool {
	return slices.ContainsFunc(p.options.AllowedSANs, func(allowed string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return sameName(name, allowed) })
	})
}

// sameName reports whether two names are equal. It ignores the case of domain names, but not
// of URIs, and gives wildcards no meaning.
func sameName(a, b string) bool {
	if strings.Contains(a, "://") || strings.Contains(b, "://") {
		return a == b
	}
	return strings.EqualFold(a, b)
}

// subjectNames returns the domain names and URIs that a certificate is for.
func subjectNames(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	return names
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "no name at all"
	}
	return strings.Join(names, ", ")
}
