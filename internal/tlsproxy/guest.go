package tlsproxy

import (
	"context"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

// Why a client is asked to go, as the cause of the context of its stay.
var (
	errDraining  = errors.New("the proxy stops")
	errUntrusted = errors.New("its certificate comes from no authority in the client CA file any more")
)

// guest is a client that is connected.
type guest struct {
	certificates []*x509.Certificate // its own, then what leads to its authority
	askToGo      context.CancelCauseFunc
}

// guests are the clients that are connected. The zero value is ready for use.
type guests struct {
	mu  sync.Mutex
	all map[*guest]bool // guarded by mu
}

func (g *guests) add(one *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[*guest]bool{}
	}
	g.all[one] = true
}

func (g *guests) remove(one *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, one)
}

func (g *guests) list() []*guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*guest
	for one := range g.all {
		list = append(list, one)
	}
	return list
}

// check asks a client to go whose certificate would not be taken today.
func (one *guest) check(m *tlsfiles.Material, now time.Time) {
	between := x509.NewCertPool()
	for _, c := range one.certificates[1:] {
		between.AddCert(c)
	}
	_, err := one.certificates[0].Verify(x509.VerifyOptions{
		Roots: m.Authorities, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		one.askToGo(errUntrusted)
	}
}
