package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// proxiedName is the name in the certificate of hub and proxies.
const proxiedName = "bench"

// proxiesCase has a proxy before each driver, as the hub needs it for drivers in other Pods. Its memory is that of hub and
// proxies together, beside ten csi-attachers.
func proxiesCase() Case {
	return Case{
		Name: "proxies", About: "10 drivers behind 10 proxies, 50 volumes each, all at once; 2,500 PersistentVolumes",
		Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50, Latency: latency, Workers: 100,
		Bursts: 3, Rounds: 2, Sidecars: []string{sidecarName, tunedSidecarName}, SidecarRounds: 1, alone: true, proxied: true, turn: turnOfProxies,
		Targets: append(contract(false), AtMost(ResidentProxy, 16*(1<<20))),
	}
}

// turnOfProxies measures bursts, and a proxy before them.
func turnOfProxies(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	proxy := 0.0
	for _, p := range a.proxies {
		u, err := processUsage(p.PID())
		if err != nil {
			return nil, err
		}
		proxy = max(proxy, u.resident)
	}
	figures, err := turnOfBursts(ctx, s, a)
	if err == nil && len(a.proxies) > 0 {
		figures[ResidentProxy] = proxy
	}
	return figures, err
}

// startProxies starts a proxy before each driver, which gets its endpoint. It returns the settings of the drivers for it.
func startProxies(ctx context.Context, s *stage, a *attacher, drivers []*testbed.Driver) (func(*testbed.Driver) string, error) {
	cert, key, err := s.writeCertificate()
	if err != nil {
		return nil, err
	}
	for _, d := range drivers {
		listen, err := testbed.FreeAddress(ctx)
		if err != nil {
			return nil, err
		}
		health, err := testbed.FreeAddress(ctx)
		if err != nil {
			return nil, err
		}
		p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{Name: "proxy of " + d.Name, Path: s.opts.Proxy, LogPath: s.file("proxy-" + d.Name + ".log"),
			// As adopt writes it.
			Env:  []string{"GOMEMLIMIT=48MiB"},
			Args: []string{"--listen=" + listen, "--health-listen=" + health, "--target=" + d.Endpoint(), "--tls-cert=" + cert, "--tls-key=" + key, "--client-ca=" + cert, "--allow-san=" + proxiedName}})
		if err != nil {
			return nil, err
		}
		a.processes, a.proxies = append(a.processes, p), append(a.proxies, p)
		d.Proxy = "tcp://" + listen
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
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: proxiedName}, DNSNames: []string{proxiedName},
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
	cert, key = filepath.Join(s.dir, "tls.crt"), filepath.Join(s.dir, "tls.key")
	return cert, key, errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
}
