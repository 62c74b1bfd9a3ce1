package registry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Conflict is a driver that was found and is not served, or not as it was found.
// Origins are in the form of Driver.Source.
type Conflict struct {
	Driver string // its name
	Winner string // origin of the driver that is served instead; "" if none is
	Loser  string // origin of what is not served
	Reason string // for people; one line
}

// isLike reports whether two conflicts differ in nothing but the Winner, whose line moves with
// each edit above it.
func (c Conflict) isLike(other Conflict) bool {
	c.Winner = other.Winner
	return c == other
}

// merge decides which drivers are served. Drivers that drivers.yaml lists go before those of
// CSIDriver objects; among these the order is by name. A driver that cannot be served beside one before
// it is a conflict, as is an endpoint that may not be contacted. Drivers with WindDown go after all others
// and cause no conflict: mostly nothing of them is attached. merge is pure, and the order of what was
// found does not matter.
//
// While the configuration is incomplete, only those are served of what was found that are in last, the Snapshot before: a file
// that cannot be read may list the others.
func merge(config *Config, found []Driver, last Snapshot) (Snapshot, []Conflict) {
	m := merger{config: config, last: last, snapshot: maps.Clone(config.drivers), taken: map[claim]Driver{}}
	for _, d := range config.drivers {
		m.take(d)
	}
	var conflicts []Conflict
	inOrder := func(a, b Driver) int { // "false" is before "true"
		return cmp.Or(cmp.Compare(strconv.FormatBool(a.WindDown), strconv.FormatBool(b.WindDown)), cmp.Compare(a.Name, b.Name))
	}
	for _, d := range slices.SortedFunc(slices.Values(found), inOrder) {
		if winner, reason := m.offer(d); reason != "" && !d.WindDown {
			conflicts = append(conflicts, Conflict{Driver: d.Name, Winner: winner.Source, Loser: d.Source, Reason: reason})
		}
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
	return m.snapshot, conflicts
}

// merger holds what has been decided so far.
type merger struct {
	config   *Config
	last     Snapshot
	snapshot Snapshot
	taken    map[claim]Driver // by the drivers in the snapshot
}

func (m *merger) take(d Driver) {
	for _, c := range d.claims() {
		m.taken[c] = d
	}
}

// offer decides on a driver that a CSIDriver object names. It returns why the driver is not served, if that is a conflict, and the
// one that is served instead, if there is one.
func (m *merger) offer(d Driver) (winner Driver, reason string) {
	rule := m.config.discovery
	served, known := m.snapshot[d.Name]
	if d.Endpoint == "" {
		// An entry of drivers is the exception from the template, not in conflict with it.
		if known || rule.EndpointTemplate == "" {
			return Driver{}, ""
		}
		d.Endpoint = Endpoint(strings.ReplaceAll(rule.EndpointTemplate, driverPlaceholder, d.Name))
	}
	d.Settings = m.config.defaults
	d.TLS = rule.tls(d.Endpoint)
	d.Insecure = d.Insecure && !d.TLS.Enabled()
	if err := rule.check(d); err != nil {
		return Driver{}, err.Error()
	}
	if _, before := m.last[d.Name]; m.config.incomplete && !before {
		return Driver{}, "a file of the configuration cannot be read, and may list the driver: correct it"
	}
	if known {
		if served.Endpoint != d.Endpoint {
			reason = fmt.Sprintf("%s is served at %s and not at %s", d.Name, quote(string(served.Endpoint)), quote(string(d.Endpoint)))
		}
		return served, reason
	}
	for _, c := range d.claims() {
		if first, ok := m.taken[c]; ok {
			return first, c.reason(d, first, "")
		}
	}
	m.take(d)
	m.snapshot[d.Name] = d
	return Driver{}, ""
}

// claim is something that only one of the drivers of a hub can have.
type claim struct {
	kind  string // one of the constants below
	value string
}

const (
	claimName      = "name"
	claimFinalizer = "finalizer" // the form of the name in it
	claimLease     = "lease"
	claimEndpoint  = "endpoint"
)

// claims returns what the driver takes from all others. A name or an endpoint that is "" takes nothing.
func (d Driver) claims() []claim {
	var all []claim
	if d.Name != "" {
		all = append(all, claim{claimName, d.Name}, claim{claimFinalizer, SanitizedName(d.Name)}, claim{claimLease, d.LeaseOf().String()})
	}
	if d.Endpoint != "" {
		all = append(all, claim{claimEndpoint, string(d.Endpoint)})
	}
	return all
}

// reason says why a driver cannot be served beside the first that has the claim; where says in brackets where that is.
func (c claim) reason(d, first Driver, where string) string {
	switch c.kind {
	case claimName:
		return fmt.Sprintf("the driver %s is already named%s", d.Name, where)
	case claimFinalizer:
		return fmt.Sprintf("%s and %s%s both become %s in finalizers and leases, so one hub cannot serve both", d.Name, first.Name, where, c.value)
	case claimLease:
		return fmt.Sprintf("%s uses the lease %s, as %s%s does, so one hub cannot serve both", d.Name, c.value, first.Name, where)
	}
	return fmt.Sprintf("%s is already the endpoint of %s%s, and only one driver can answer there", quote(c.value), cmp.Or(first.Name, "another driver"), where)
}
