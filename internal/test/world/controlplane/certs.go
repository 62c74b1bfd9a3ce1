package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// certLife is long because a folder may be kept; nothing renews certificates.
const certLife = 10 * 365 * 24 * time.Hour

// makeCerts writes the CA certificate, the serving certificate and key that
// it signed, and the key that signs service account tokens. The CA's own key is
// not kept: nothing else is ever signed.
func makeCerts(s *state) error {
	caKey, err := newKey()
	if err != nil {
		return err
	}
	ca := certTemplate(1, "csi-attach-hub control plane CA")
	ca.IsCA = true
	ca.BasicConstraintsValid = true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return fmt.Errorf("make CA certificate: %w", err)
	}

	servingKey, err := newKey()
	if err != nil {
		return err
	}
	serving := certTemplate(2, "localhost")
	serving.KeyUsage = x509.KeyUsageDigitalSignature
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.DNSNames = []string{"localhost"}
	serving.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	servingDER, err := x509.CreateCertificate(rand.Reader, serving, ca, servingKey.Public(), caKey)
	if err != nil {
		return fmt.Errorf("make serving certificate: %w", err)
	}

	if err := writePEM(s.path("ca.crt"), "CERTIFICATE", caDER); err != nil {
		return err
	}
	if err := writePEM(s.path("server.crt"), "CERTIFICATE", servingDER); err != nil {
		return err
	}
	if err := writeKey(s.path("server.key"), servingKey); err != nil {
		return err
	}
	accountKey, err := newKey()
	if err != nil {
		return err
	}
	return writeKey(s.path("service-account.key"), accountKey)
}

func certTemplate(serial int64, name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), // for clocks that run late
		NotAfter:     now.Add(certLife),
	}
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key %s: %w", path, err)
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}
