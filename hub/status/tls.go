package status

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

// filePollInterval is how often the files are looked at. A change is believed at the
// second look.
const filePollInterval = 10 * time.Second

// TLS is the certificate of the port and its key, in PEM files that may be replaced.
// The zero value means HTTP without TLS. Clients are not asked for certificates.
type TLS struct{ CertFile, KeyFile string }

func (t TLS) check() error {
	if (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("the certificate and its key go together: one of the two files is missing")
	}
	return nil
}

// load reads the files.
func (t TLS) load() (*tlsfiles.Material, error) {
	// No authorities are needed: the certificate stands in for them, and is not used as such.
	return tlsfiles.Files{CA: t.CertFile, Cert: t.CertFile, Key: t.KeyFile}.Load()
}

func pollFiles() (<-chan time.Time, func()) {
	ticker := time.NewTicker(filePollInterval)
	return ticker.C, ticker.Stop
}

// tlsConfig has the certificate of the moment, for each connection anew.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &s.material.Load().Certificate, nil
		},
	}
}

// followFiles takes new files for connections to come, until ctx ends. Files that are
// not whole are logged and change nothing.
func (s *Server) followFiles(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticks, stop := s.poll()
	defer stop()
	used := s.material.Load()
	if err := used.CheckTime(time.Now()); err != nil {
		logger.Info("Warning: clients will not take the certificate of the HTTP port", "problem", err)
	}
	files, problem := tlsfiles.NewFollower(used), ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		next, err := files.Look()
		if err == nil {
			problem = ""
		} else if err.Error() != problem {
			problem = err.Error()
			logger.Info("Warning: the TLS files of the HTTP port are not whole, those read before go on to hold", "problem", problem)
		}
		if next != nil {
			s.material.Store(next)
			logger.Info("Took new TLS files for the HTTP port", "expires", next.Certificate.Leaf.NotAfter)
		}
	}
}
