package main

import (
	"cmp"

	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// featuresOf returns what this process needs rights for with the configuration of its start.
func featuresOf(s hubSettings, config *registry.Config) rights.Features {
	f := rights.Features{Discovery: config.Discovery().CSIDrivers.Enabled, Reviews: s.http.Authorized}
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
