package main

import (
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
)

// newLeases returns the leases that decide which process works for which driver, nil
// without leader election.
func newLeases(s hubSettings, config *rest.Config) (*lease.Leases, error) {
	if !s.leases.Enabled {
		return nil, nil
	}
	kube, err := leaseClient(config)
	if err != nil {
		return nil, err
	}
	return lease.New(lease.Options{
		Kube:          kube,
		Identity:      lease.NewIdentity(),
		Namespace:     s.leases.Namespace,
		Labels:        s.leases.Labels,
		Duration:      s.leases.Duration,
		RenewDeadline: s.leases.RenewDeadline,
		RetryPeriod:   s.leases.RetryPeriod,
		Alone:         s.csiAddress != "",
	})
}

// leaseClient returns a client with a connection of its own: slow or throttled requests for
// volumes must not delay the renewal of a lease.
func leaseClient(config *rest.Config) (lease.Kube, error) {
	kube, err := newKubeClient(withOwnConnection(config, "leases"))
	if err != nil {
		return nil, fmt.Errorf("for leases: %w", err)
	}
	return kube, nil
}
