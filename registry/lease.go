package registry

import "strings"

// Lease names the Lease object that the process that serves a driver holds.
type Lease struct {
	Name      string // "" for LeaseName of the driver
	Namespace string // "" for the namespace that the program has for its leases
}

// String is "namespace/name", or the name alone.
func (l Lease) String() string {
	if l.Namespace == "" {
		return l.Name
	}
	return l.Namespace + "/" + l.Name
}

// LeaseOf returns the lease of the driver, with its name.
func (d Driver) LeaseOf() Lease {
	l := d.Lease
	if l.Name == "" {
		l.Name = LeaseName(d.Name)
	}
	return l
}

// LeaseName returns the default name of a driver's lease. It is csi-attacher's, so that only
// one of both works. The Kubernetes API allows no capitals in it: csi-attacher cannot have a
// lease for a driver with capitals, and here they become small letters. Drivers whose names
// differ in nothing else share this lease.
func LeaseName(driver string) string {
	return strings.ToLower(SanitizedName("external-attacher-leader-" + driver))
}
