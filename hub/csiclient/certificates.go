package csiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Certificates makes a TLS handshake with the driver's side on a connection of its own, and returns the certificates of both
// sides. Its errors are those of Connect.
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
	conn, _, err := secure(ctx, raw, d.TLS, material)
	if err != nil {
		return nil, nil, fmt.Errorf("speak TLS with %s: %w", d.Endpoint, err)
	}
	return material.Certificate.Leaf, conn.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil // secure has made it
}
