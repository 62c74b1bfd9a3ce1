package tlsproxy

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

// The reasons for asking a client to go: causes of its context stay.
var (
	errDraining  = errors.New("the proxy stops")
	errUntrusted = errors.New("its certificate comes from no authority in the client CA file any more")
)

// client is a client that is connected.
type client struct {
	certificates []*x509.Certificate // its own certificate, then the intermediate authorities
	askToGo      context.CancelCauseFunc
}

// check asks a client to go if its certificate is not accepted any more.
func (c *client) check(m *tlsfiles.Material, now time.Time) {
	intermediates := x509.NewCertPool()
	for _, certificate := range c.certificates[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := c.certificates[0].Verify(x509.VerifyOptions{
		Roots: m.Authorities, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		c.askToGo(errUntrusted)
	}
}
