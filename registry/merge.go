package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// merge decides which drivers are served. Drivers that drivers.yaml lists go before those of
// CSIDriver objects; among these the order is by name. A driver that cannot be served beside one before
// it is a conflict, as is an endpoint that may not be contacted. Drivers with WindDown go after all others
// and cause no conflict: mostly nothing of them is attached. merge is pure, and the order of what was
// found does not matter.
//
// While the configuration is incomplete, only those are served of what was found that are in last, the Snapshot before: a file
// that cannot be read may list the others.
func merge(config *Config, found []Driver, last Snapshot) (Snapshot, []Conflict) {
	m := merger{incomplete: config.incomplete, last: last, rule: config.discovery.CSIDrivers, defaults: config.defaults, snapshot: Snapshot{}, taken: claims[string]{}}
	for _, d := range config.drivers {
		m.serve(d)
	}
	inOrder := func(a, b Driver) int { return cmp.Or(compareBool(a.WindDown, b.WindDown), cmp.Compare(a.Name, b.Name)) }
	for _, d := range slices.SortedFunc(slices.Values(found), inOrder) {
		m.offer(d)
	}
	var listed []string
	for _, d := range m.snapshot {
		listed = append(listed, d.Secrets.All()...)
	}
	patterns := newSecretPatterns(listed)
	for name, d := range m.snapshot {
		d.Listed = patterns
		m.snapshot[name] = d
	}
	sortConflicts(m.conflicts)
	return m.snapshot, slices.Compact(m.conflicts)
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// merger holds what has been decided so far.
type merger struct {
	incomplete bool
	last       Snapshot
	rule       CSIDriverDiscovery
	defaults   Settings
	snapshot   Snapshot
	taken      claims[string] // by the drivers in the snapshot, with their names
	conflicts  []Conflict
}

// serve takes a driver into the snapshot.
func (m *merger) serve(d Driver) {
	m.snapshot[d.Name] = d
	m.taken[sanitizedName(d.Name)] = d.Name
	m.taken[d.LeaseOf()] = d.Name
	m.taken[d.Endpoint] = d.Name
}

// offer decides on a driver that a CSIDriver object names.
func (m *merger) offer(d Driver) {
	if d.Endpoint == "" {
		// An entry of drivers is the exception from the template, not in conflict with it.
		if _, listed := m.snapshot[d.Name]; listed || m.rule.EndpointTemplate == "" {
			return
		}
		d.Endpoint = Endpoint(strings.ReplaceAll(m.rule.EndpointTemplate, driverPlaceholder, d.Name))
	}
	d.Settings = m.defaults
	d.TLS = m.rule.tls(d.Endpoint)
	d.Insecure = d.Insecure && !d.TLS.Enabled()
	if err := m.rule.check(d); err != nil {
		m.refuse(d, "", err.Error())
		return
	}
	if _, ok := m.last[d.Name]; m.incomplete && !ok {
		m.refuse(d, "", "a file of the configuration cannot be read, and may list the driver: correct it")
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
