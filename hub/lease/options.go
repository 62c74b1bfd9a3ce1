package lease

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Options say who competes for leases, where, and how fast.
type Options struct {
	// Kube should be a client of its own without a rate limit: requests for volumes that are
	// throttled or hang must not cost the lease.
	Kube Kube
	// Identity is unique to this run of this process: a lease with it counts as held by this
	// process. See NewIdentity.
	Identity  string
	Namespace string            // where replicas announce themselves
	Labels    map[string]string // put on the leases that are taken

	// As in client-go: a lease that was not renewed for Duration may be taken by another
	// process; it is renewed in each RetryPeriod, and given up when renewals have failed for
	// RenewDeadline. Duration is whole seconds, as in a Lease.
	Duration, RenewDeadline, RetryPeriod time.Duration

	// Alone makes this process compete for every candidacy at once and announce nothing: it
	// replaces one sidecar and shares no drivers with replicas.
	Alone bool
}

// Kube is the part of the Kubernetes API that has leases; every kubernetes.Interface is one.
type Kube interface {
	CoordinationV1() coordinationclient.CoordinationV1Interface
}

// check reports all errors at once.
func (o Options) check() error {
	var errs []error
	if o.Namespace == "" && !o.Alone {
		errs = append(errs, errors.New("no namespace to announce this replica in"))
	}
	return errors.Join(append(errs, o.CheckTimes()...)...)
}

// CheckTimes returns how the times contradict each other. client-go's leader election has the same rules: it waits for up to 1.2
// times the retry period between two tries.
func (o Options) CheckTimes() (errs []error) {
	if o.Duration < time.Second || o.Duration%time.Second != 0 {
		errs = append(errs, fmt.Errorf("lease-duration is %v: it must be whole seconds, at least one", o.Duration))
	}
	if o.RenewDeadline >= o.Duration {
		errs = append(errs, fmt.Errorf("renew-deadline is %v: it must be below the lease duration, which is %v", o.RenewDeadline, o.Duration))
	}
	if o.RetryPeriod <= 0 {
		errs = append(errs, fmt.Errorf("retry-period is %v: it must be positive", o.RetryPeriod))
	} else if longest := o.RetryPeriod * 6 / 5; o.RenewDeadline <= longest {
		errs = append(errs, fmt.Errorf("renew-deadline is %v: it must be above 1.2 times the retry period, which makes %v", o.RenewDeadline, longest))
	}
	return errs
}

// requestTimeout bounds one request, so that a request that hangs leaves time for another
// within the renew deadline.
func (o Options) requestTimeout() time.Duration { return o.RenewDeadline / 2 }

// NewIdentity returns an identity of the host's name and a random text.
func NewIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // the random text makes it unique
	}
	return host + "_" + strings.ToLower(rand.Text()[:16])
}
