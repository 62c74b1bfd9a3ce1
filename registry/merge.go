package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// found is what the sources beside drivers.yaml see.
type found struct {
	csiDrivers []Driver
	sockets    []Driver
}

// merge decides which drivers are served. Drivers that drivers.yaml lists go before those of
// CSIDriver objects, these before those of sockets; among equals the order is by name, for
// sockets by path. A driver that cannot be served beside one before it is a conflict, as is
// an endpoint that may not be contacted. Drivers with WindDown go after all others and cause
// no conflict: mostly nothing of them is attached. merge is pure, and the order of what was
// found does not matter.
func merge(config *Config, f found) (Snapshot, []Conflict) {
	m := merger{defaults: config.defaults, snapshot: Snapshot{}, taken: claims[string]{}}
	for _, d := range config.drivers {
		m.serve(d)
	}
	objects := sorted(f.csiDrivers, func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
	for _, d := range objects {
		if !d.WindDown {
			m.offerObject(d, config.discovery.CSIDrivers)
		}
	}
	for _, d := range sorted(f.sockets, func(a, b Driver) int { return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Name, b.Name)) }) {
		m.offer(d, nil)
	}
	for _, d := range objects {
		if d.WindDown {
			m.offerObject(d, config.discovery.CSIDrivers)
		}
	}
	sortConflicts(m.conflicts)
	return m.snapshot, slices.Compact(m.conflicts)
}

func sorted(drivers []Driver, order func(a, b Driver) int) []Driver {
	return slices.SortedFunc(slices.Values(drivers), order)
}

// merger holds what has been decided so far.
type merger struct {
	defaults  Settings
	snapshot  Snapshot
	taken     claims[string] // by the drivers in the snapshot, with their names
	conflicts []Conflict
}

// serve takes a driver into the snapshot.
func (m *merger) serve(d Driver) {
	m.snapshot[d.Name] = d
	m.taken[sanitizedName(d.Name)] = d.Name
	m.taken[d.LeaseOf()] = d.Name
	m.taken[d.Endpoint] = d.Name
}

// offerObject decides on a driver that a CSIDriver object names.
func (m *merger) offerObject(d Driver, rule CSIDriverDiscovery) {
	if d.Endpoint == "" {
		// An entry of drivers is the exception from the template, not in conflict with it.
		if _, listed := m.snapshot[d.Name]; listed || rule.EndpointTemplate == "" {
			return
		}
		d.Endpoint = Endpoint(strings.ReplaceAll(rule.EndpointTemplate, driverPlaceholder, d.Name))
	}
	d.TLS = rule.tls(d.Endpoint)
	m.offer(d, rule.check)
}

// offer decides on a driver that was discovered; allow returns an error for an endpoint that
// may not be contacted.
func (m *merger) offer(d Driver, allow func(Endpoint) error) {
	d.Settings = m.defaults
	d.Insecure = d.Insecure && !d.TLS.Enabled()
	if err := checkDiscovered(d, allow); err != nil {
		m.refuse(d, "", err.Error())
		return
	}
	if first, ok := m.snapshot[d.Name]; ok {
		if first.Endpoint != d.Endpoint {
			m.refuse(d, d.Name, fmt.Sprintf("%s is served at %s and not at %s", d.Name, quote(string(first.Endpoint)), quote(string(d.Endpoint))))
		}
		return
	}
	if first, ok := m.taken[sanitizedName(d.Name)]; ok {
		m.refuse(d, first, fmt.Sprintf("%s and %s both become %s in finalizers and leases, so one hub cannot serve both",
			d.Name, first, SanitizedName(d.Name)))
		return
	}
	if first, ok := m.taken[d.LeaseOf()]; ok {
		m.refuse(d, first, fmt.Sprintf("%s uses the lease %s, as %s does, so one hub cannot serve both", d.Name, d.LeaseOf(), first))
		return
	}
	if first, ok := m.taken[d.Endpoint]; ok {
		m.refuse(d, first, fmt.Sprintf("%s is already the endpoint of %s, and only one driver can answer there", quote(string(d.Endpoint)), first))
		return
	}
	m.serve(d)
}

// refuse records why a driver is not served, unless it has WindDown; winner is the name
// of the driver that is served instead, "" if none is.
func (m *merger) refuse(d Driver, winner, reason string) {
	if d.WindDown {
		return
	}
	m.conflicts = append(m.conflicts, Conflict{Driver: d.Name, Winner: m.snapshot[winner].Source, Loser: d.Source, Reason: reason})
}

// checkDiscovered returns an error if a driver may not be contacted.
func checkDiscovered(d Driver, allow func(Endpoint) error) error {
	if err := CheckName(d.Name); err != nil {
		return err
	}
	if _, err := ParseEndpoint(string(d.Endpoint)); err != nil {
		return err
	}
	if allow != nil {
		if err := allow(d.Endpoint); err != nil {
			return err
		}
	}
	if d.CheckTransport() != nil {
		return fmt.Errorf("%s without TLS would carry secrets in plain text: write discovery.csiDrivers.tls, or list the driver with tls of its own",
			quote(string(d.Endpoint)))
	}
	return nil
}

// claims maps what only one driver can have to the first that has it: a driverName, a
// sanitized name, a Lease, an Endpoint.
type claims[T any] map[any]T

type (
	driverName string
	sanitized  string
)

func sanitizedName(driver string) sanitized { return sanitized(SanitizedName(driver)) }

// claim records who has a key. If the key is taken, it returns who took it first.
func (c claims[T]) claim(key any, who T) (first T, taken bool) {
	if first, taken = c[key]; !taken {
		c[key] = who
	}
	return first, taken
}
