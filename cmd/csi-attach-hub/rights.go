package main

import (
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// neededRights returns the rights that this process needs with the configuration of its start.
func neededRights(s hubSettings, config *registry.Config) []rights.Right {
	f := rights.Features{Discovery: config.Discovery().CSIDrivers.Enabled, Reviews: s.http.Authorized}
	if s.leases.Enabled {
		f.LeaseNamespaces = []string{s.leases.Namespace}
		for _, d := range config.Drivers() {
			f.LeaseNamespaces = append(f.LeaseNamespaces, d.LeaseOf().Namespace)
		}
		if s.csiAddress == "" {
			f.ReplicaNamespace = s.leases.Namespace
		}
	}
	return rights.Needed(f)
}
