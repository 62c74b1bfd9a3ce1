package lease

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
)

// Kube is the part of the Kubernetes API in which leases are; every kubernetes.Interface
// is one.
type Kube interface {
	CoordinationV1() coordinationv1client.CoordinationV1Interface
}

// Options say who competes for leases, where, and how fast.
type Options struct {
	// Kube should be a client of its own without a rate limit: work that is
	// throttled or hangs must not cost the lease.
	Kube Kube
	// Identity is unique to this process, also among its former lives: what
	// carries it in a lease counts as this process's own. See NewIdentity.
	Identity  string
	Namespace string            // where replicas announce themselves
	Labels    map[string]string // put on the leases that are taken

	// As in client-go. A lease that stood unchanged for Duration is taken by
	// somebody else; Duration is whole seconds, because a Lease says so.
	Duration, RenewDeadline, RetryPeriod time.Duration

	// Alone makes this process compete for every claim at once and announce
	// nothing: it stands in for one sidecar and shares with nobody.
	Alone bool
}

// check reports all that is wrong at once.
func (o Options) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Kube == nil {
		wrong("no client")
	}
	if o.Identity == "" {
		wrong("no identity")
	}
	if o.Namespace == "" && !o.Alone {
		wrong("no namespace to announce this replica in")
	}
	if o.Duration < time.Second || o.Duration%time.Second != 0 {
		wrong("lease duration %v: must be whole seconds, at least 1s", o.Duration)
	}
	if o.RenewDeadline >= o.Duration {
		wrong("renew deadline %v: must be shorter than the lease duration %v", o.RenewDeadline, o.Duration)
	}
	if o.RetryPeriod <= 0 {
		wrong("retry period %v: must be more than 0", o.RetryPeriod)
	}
	if least := time.Duration(leaderelection.JitterFactor * float64(o.RetryPeriod)); o.RenewDeadline <= least {
		wrong("renew deadline %v: must be longer than %v, which is %v times the retry period", o.RenewDeadline, least, leaderelection.JitterFactor)
	}
	return errors.Join(errs...)
}

// requestTimeout bounds one request, so that one that hangs leaves time for
// another within the renew deadline.
func (o Options) requestTimeout() time.Duration { return o.RenewDeadline / 2 }

// NewIdentity makes an identity from the host's name and chance.
func NewIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // chance alone makes it unique
	}
	return host + "_" + strings.ToLower(rand.Text()[:16])
}
