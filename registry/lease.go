package registry

import "strings"

// Lease names the Lease object that whoever serves a driver holds.
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

// LeaseName returns the name of the lease of a driver about which nothing was said:
// the one that csi-attacher takes, so that only one of both works. The Kubernetes API
// takes no capitals in it: where csi-attacher has some it cannot have a lease, and
// here they become small. Drivers whose names differ in nothing else share this lease.
func LeaseName(driver string) string {
	return strings.ToLower(SanitizedName("external-attacher-leader-" + driver))
}
