package status

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"

	"k8s.io/client-go/util/cert"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

// TLS names the PEM files of the port's certificate and key, which may be replaced at run time.
// The zero value means HTTP without TLS. Clients are not asked for certificates.
type TLS struct {
	CertFile, KeyFile string
	// SelfSigned, without files, makes a certificate that is valid for a year from the start. It
	// encrypts the connection but does not prove the identity of the server.
	SelfSigned bool
}

func (t TLS) check() error {
	if (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("the certificate and its key go together: one of the two files is missing")
	}
	if t.SelfSigned && t.CertFile != "" {
		return errors.New("a certificate cannot be read from a file and be self-signed at once")
	}
	return nil
}

// load reads the files, or makes a certificate for the server at an address.
func (t TLS) load(address string) (*tlsfiles.Material, error) {
	if t.SelfSigned {
		return selfSigned(address)
	}
	// Clients show no certificates, so no authorities are needed: the certificate stands in for them.
	return tlsfiles.Files{CA: t.CertFile, Cert: t.CertFile, Key: t.KeyFile}.Load()
}

// tlsConfig returns a configuration that gives each new connection the present certificate.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &s.material.Load().Certificate, nil
		},
	}
}

// followFiles uses new files for later connections, until ctx ends.
func (s *Server) followFiles(ctx context.Context) {
	used := s.material.Load()
	tlsfiles.NewFollower(used).Run(ctx, s.poll, func(next *tlsfiles.Material) { s.material.Store(next) })
}

// selfSigned makes a certificate for the server at an address.
func selfSigned(address string) (*tlsfiles.Material, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this machine in a certificate: %w", err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(cmp.Or(host, name), nil, []string{name, "localhost"})
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("use the certificate that was made: %w", err)
	}
	return &tlsfiles.Material{Certificate: pair}, nil
}
