package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// proxiedName is the name in the certificate of hub and proxies.
const proxiedName = "bench"

// startProxies starts a proxy before each driver, which gets its endpoint. It returns the settings of the drivers for it.
func (s *stage) startProxies(ctx context.Context, a *attacher, drivers []*testbed.Driver) (func(*testbed.Driver) string, error) {
	cert, key, err := s.writeCertificate()
	if err != nil {
		return nil, err
	}
	for _, d := range drivers {
		var addresses [2]string // for the hub, and for probes
		for i := range addresses {
			if addresses[i], err = testbed.FreeAddress(ctx); err != nil {
				return nil, err
			}
		}
		p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{Name: "proxy of " + d.Name, Path: s.proxy, LogPath: s.file("proxy-" + d.Name + ".log"),
			Env:  []string{"GOMEMLIMIT=48MiB"}, // as adopt writes it
			Args: []string{"--listen=" + addresses[0], "--health-listen=" + addresses[1], "--target=" + d.Endpoint(), "--tls-cert=" + cert, "--tls-key=" + key, "--client-ca=" + cert, "--allow-san=" + proxiedName}})
		if err != nil {
			return nil, err
		}
		a.processes, a.proxies = append(a.processes, p), append(a.proxies, p)
		d.Proxy = "tcp://" + addresses[0]
	}
	settings := fmt.Sprintf("tls: {caFile: %q, certFile: %q, keyFile: %q, serverName: %s}", cert, cert, key, proxiedName)
	return func(*testbed.Driver) string { return settings }, nil
}

// writeCertificate writes a certificate that is its own authority, and its key.
func (s *stage) writeCertificate() (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{proxiedName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	cert, key = s.file("tls.crt"), s.file("tls.key")
	return cert, key, errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
}
