package tlsfiles

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// Files are the paths of the three PEM files.
type Files struct{ CA, Cert, Key string }

// Material is the content of the files. It does not change.
type Material struct {
	CAs         *x509.CertPool
	Certificate tls.Certificate // with its Leaf
	files       Files
	sum         [sha256.Size]byte
	replaced    chan struct{}
}

// Replaced returns a channel that Follow closes when it has taken other content.
func (m *Material) Replaced() <-chan struct{} { return m.replaced }

// VerifyClient checks the certificates that a client has shown: its own, then those between it and a CA.
func (m *Material) VerifyClient(chain []*x509.Certificate) error {
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: m.CAs, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// Load reads the files and checks that there is a CA, and that key and certificate
// belong together. Its error names the file.
func (f Files) Load() (*Material, error) {
	sum := sha256.New()
	var content [3][]byte
	for i, path := range []string{f.CA, f.Cert, f.Key} {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("there is no file %s: %w", path, fs.ErrNotExist)
		}
		if err != nil {
			return nil, err
		}
		content[i] = data
		fmt.Fprintf(sum, "%d\n%s", len(data), data)
	}
	m := &Material{files: f, CAs: x509.NewCertPool(), sum: [sha256.Size]byte(sum.Sum(nil)), replaced: make(chan struct{})}
	if !m.CAs.AppendCertsFromPEM(content[0]) {
		return nil, fmt.Errorf("%s holds no certificate of a CA in PEM", f.CA)
	}
	var err error
	// Errors of X509KeyPair do not repeat the key.
	if m.Certificate, err = tls.X509KeyPair(content[1], content[2]); err != nil {
		return nil, fmt.Errorf("certificate in %s with key in %s: %w", f.Cert, f.Key, err)
	}
	return m, nil
}

// Reload reads the files again, and returns nil if they hold the same bytes.
func (m *Material) Reload() (*Material, error) {
	next, err := m.files.Load()
	if err != nil || next.sum == m.sum {
		return nil, err
	}
	return next, nil
}

// CheckTime returns an error if the own certificate is not valid at a time.
func (m *Material) CheckTime(now time.Time) error {
	leaf := m.Certificate.Leaf
	if now.After(leaf.NotAfter) {
		return fmt.Errorf("the certificate in %s expired at %s: renew it", m.files.Cert, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if now.Before(leaf.NotBefore) {
		return fmt.Errorf("the certificate in %s is not valid before %s: check the clocks", m.files.Cert, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// Interval is the time between two readings of the files.
const Interval = 10 * time.Second

// Follow reads the files of a port with each tick until ctx ends, and calls take with each new content. If
// the files are not whole, it logs that and keeps the content in use. At the
// start it logs a certificate that has expired or is not valid yet.
func Follow(ctx context.Context, used *Material, ticks <-chan time.Time, take func(*Material)) {
	logger := klog.FromContext(ctx).WithValues("certificate", used.files.Cert)
	if err := used.CheckTime(time.Now()); err != nil {
		logger.Info("Clients will reject the certificate of this port", "err", err)
	}
	var problem loglimit.Problem
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		next, err := used.Reload()
		if err != nil && problem.IsDue(err.Error(), time.Now()) {
			logger.Info("New TLS files rejected; the previous ones stay active", "err", err)
		}
		if next != nil {
			take(next)
			close(used.replaced)
			used = next
			logger.Info("Loaded new TLS files", "expires", next.Certificate.Leaf.NotAfter)
		}
	}
}
