package main

import (
	"cmp"
	"context"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"

	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// featuresOf returns what this process needs rights for with the configuration of its start.
func featuresOf(s hubSettings, config *registry.Config) rights.Features {
	f := rights.Features{Discovery: config.Discovery().CSIDrivers.Enabled}
	if s.leases.Enabled {
		for _, d := range config.Drivers() {
			l := d.LeaseOf()
			f.Leases = append(f.Leases, rights.Lease{Namespace: cmp.Or(l.Namespace, s.leases.Namespace), Name: l.Name})
		}
		if s.csiAddress == "" {
			f.ReplicaNamespace = s.leases.Namespace
		} else {
			f.Leases = []rights.Lease{{Namespace: s.leases.Namespace}} // the driver has not told its name yet
		}
	}
	return f
}

// rightsOf returns how a driver's checklist asks for the rights of this process.
func rightsOf(s hubSettings, config func() *registry.Config, kube rights.Kube) hub.RightsFunc {
	return func(ctx context.Context, l lease.Name) (missing []rights.Right, absent bool, err error) {
		f := featuresOf(s, config())
		f.Leases = nil
		if l != (lease.Name{}) {
			f.Leases = []rights.Lease{{Namespace: l.Namespace, Name: l.Name}}
		}
		if missing, err = rights.Missing(ctx, kube.AuthorizationV1(), rights.Needed(f)); err != nil {
			return nil, false, err
		}
		gone, err := rights.AbsentLeases(ctx, kube, f)
		return missing, len(gone) > 0, err
	}
}
