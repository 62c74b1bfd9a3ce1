package registry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	snapshot, taken := maps.Clone(config.drivers), map[reservation]Driver{}
	for _, d := range config.drivers {
		for _, c := range d.reservations() {
			taken[c] = d
		}
	}
	var conflicts []Conflict
	inOrder := func(a, b Driver) int { // "false" is before "true"
		return cmp.Or(cmp.Compare(strconv.FormatBool(a.WindDown), strconv.FormatBool(b.WindDown)), cmp.Compare(a.Name, b.Name))
	}
	for _, d := range slices.SortedFunc(slices.Values(found), inOrder) {
		served, known := snapshot[d.Name]
		if d.Endpoint == "" {
			// An entry of drivers is the exception from the template, not in conflict with it.
			if known || config.discovery.EndpointTemplate == "" {
				continue
			}
			d.Endpoint = Endpoint(strings.ReplaceAll(config.discovery.EndpointTemplate, driverPlaceholder, d.Name))
		}
		d.Settings, d.TLS = config.defaults, config.discovery.TLS.to(d.Endpoint)
		d.Insecure = d.Insecure && !d.TLS.Enabled()
		before := strings.HasPrefix(last[d.Name].Source, csiDriverOrigin)
		var winner Driver // served instead of it
		var reason string // why it is not served, if that is a conflict
		if err := config.discovery.check(d); err != nil {
			reason = err.Error()
		} else if (config.incomplete || len(config.rejected) > 0) && !before {
			reason = "a file of the configuration cannot be read, and may list the driver: correct it"
		} else if known && served.Endpoint != d.Endpoint {
			winner, reason = served, fmt.Sprintf("%s is served at %s and not at %s", d.Name, quote(string(served.Endpoint)), quote(string(d.Endpoint)))
		} else if !known {
			for _, c := range d.reservations() {
				if first, isTaken := taken[c]; isTaken && reason == "" {
					winner, reason = first, c.reason(d, first, "")
				}
			}
			if reason == "" {
				for _, c := range d.reservations() {
					taken[c] = d
				}
				snapshot[d.Name] = d
			}
		}
		if reason != "" && !d.WindDown {
			conflicts = append(conflicts, Conflict{Driver: d.Name, Winner: winner.Source, Loser: d.Source, Reason: reason})
		}
	}
	listed := slices.Clone(config.secrets)
	for _, d := range snapshot {
		listed = append(listed, d.Secrets.All()...)
	}
	patterns := newSecretPatterns(listed)
	for name, d := range snapshot {
		d.Listed = patterns
		snapshot[name] = d
	}
	return snapshot, conflicts
}

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

// reservation is something that only one of the drivers of a hub can have.
type reservation struct {
	kind  string // one of the constants below
	value string
}

const (
	reservedName      = "name"
	reservedFinalizer = "finalizer" // the form of the name in it
	reservedLease     = "lease"
	reservedEndpoint  = "endpoint"
)

// reservations returns what the driver takes from all others. A name or an endpoint that is "" takes nothing.
func (d Driver) reservations() []reservation {
	var all []reservation
	if d.Name != "" {
		all = append(all, reservation{reservedName, d.Name}, reservation{reservedFinalizer, SanitizedName(d.Name)}, reservation{reservedLease, d.LeaseOf().String()})
	}
	if d.Endpoint != "" {
		all = append(all, reservation{reservedEndpoint, string(d.Endpoint)})
	}
	return all
}

// reason says why a driver cannot be served beside the first that has the reservation, and what to do; where says in brackets where that is.
func (c reservation) reason(d, first Driver, where string) string {
	switch c.kind {
	case reservedName:
		return fmt.Sprintf("the driver %s is already named%s: remove one of them", d.Name, where)
	case reservedFinalizer:
		return fmt.Sprintf("%s and %s%s both become %s in finalizers and leases, so one hub cannot serve both: remove one of them", d.Name, first.Name, where, c.value)
	case reservedLease:
		return fmt.Sprintf("%s uses the lease %s, as %s%s does: write another lease.name or lease.namespace for one of them", d.Name, c.value, first.Name, where)
	}
	return fmt.Sprintf("%s is already the endpoint of %s%s, and only one driver can answer there: correct one of them", quote(c.value), cmp.Or(first.Name, "another driver"), where)
}
