package registry

import (
	"fmt"
	"regexp"

	"gopkg.in/yaml.v3"
)

const maxNameLength = 63

// nameForm is what the API server demands of spec.attacher, which is stricter
// than the CSI spec: a domain name, in which it ignores the case.
var nameForm = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*$`)

// entry is one element of drivers.
type entry struct {
	object
	Driver // Name and Endpoint are "" if they could not be read
}

// entries reads the list of drivers.
func (p *parser) entries(n *yaml.Node, path string, defaults level) Snapshot {
	snapshot := Snapshot{}
	if n.Kind != yaml.SequenceNode {
		p.report(n.Line, path, mistyped(n, "a list of drivers, or [] for none").Error())
		return snapshot
	}
	seen := claims{names: map[string]entry{}, sanitized: map[string]entry{}, leases: map[Lease]entry{}, endpoints: map[Endpoint]entry{}}
	for i, element := range n.Content {
		o := p.object(element, fmt.Sprintf("%s[%d]", path, i), entryKeys)
		if element.Kind != yaml.MappingNode {
			continue
		}
		e := entry{object: o, Driver: p.driver(o, defaults)}
		p.claim(seen, e)
		snapshot[e.Name] = e.Driver
	}
	return snapshot
}

// driver reads the driver of an entry.
func (p *parser) driver(o object, defaults level) Driver {
	l := p.settings(o, defaults)
	d := Driver{Settings: l.Settings, Source: fmt.Sprintf("%s:%d", p.file, o.line)}
	if name, ok := p.requiredString(o, "name", "the name by which the driver calls itself"); ok {
		if err := checkName(name); err != nil {
			p.report(o.values["name"].Line, o.child("name"), err.Error())
		} else {
			d.Name = name
			p.doubtName(o, d)
		}
	}
	if s, ok := p.requiredString(o, "endpoint", "an endpoint like unix:///path/to/csi.sock or tcp://host:port"); ok {
		endpoint, err := ParseEndpoint(s)
		if err != nil {
			p.report(o.values["endpoint"].Line, o.child("endpoint"), err.Error())
		}
		d.Endpoint = endpoint
	}
	return p.transport(o, d, l)
}

// checkName says what keeps a name from being the spec.attacher of a
// VolumeAttachment.
func checkName(name string) error {
	if len(name) > maxNameLength {
		return fmt.Errorf("%s has %d characters, the name of a CSI driver may have %d at most: write the name by which the driver calls itself",
			quote(name), len(name), maxNameLength)
	}
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%s is no name of a CSI driver: write a domain name like ebs.csi.aws.com (letters, digits, '-' and '.', a letter or a digit at both ends of each part)",
			quote(name))
	}
	return nil
}

// claims is what no two drivers can share, with the entry that has it.
type claims struct {
	names, sanitized map[string]entry
	leases           map[Lease]entry
	endpoints        map[Endpoint]entry
}

// claim reports what an entry shares with one before it.
func (p *parser) claim(seen claims, e entry) {
	if e.Name != "" {
		line, path := e.values["name"].Line, e.child("name")
		first, twice := take(seen.names, e.Name, e)
		if twice {
			p.reportf(line, path, "the driver %s is already named on line %d: remove one of them", e.Name, first.values["name"].Line)
			if first.Endpoint == e.Endpoint {
				return // one mistake, not two: the entry was copied
			}
		} else if first, twice := take(seen.sanitized, SanitizedName(e.Name), e); twice {
			p.reportf(line, path, "%s and %s (line %d) both become %s in finalizers and leases, so that one hub cannot serve both: remove one of them",
				e.Name, first.Name, first.values["name"].Line, SanitizedName(e.Name))
		} else {
			p.claimLease(seen, e)
		}
	}
	if e.Endpoint == "" {
		return
	}
	if first, twice := take(seen.endpoints, e.Endpoint, e); twice {
		p.reportf(e.values["endpoint"].Line, e.child("endpoint"), "%s is already the endpoint on line %d, and only one driver can answer there: correct one of them",
			quote(string(e.Endpoint)), first.values["endpoint"].Line)
	}
}

// claimLease reports a lease that a driver before has: whoever held it for one of
// them would be taken to serve the other.
func (p *parser) claimLease(seen claims, e entry) {
	lease := e.LeaseOf()
	first, twice := take(seen.leases, lease, e)
	if !twice {
		return
	}
	key := "name"
	if _, written := e.values["lease.name"]; written {
		key = "lease.name"
	}
	p.reportf(e.values[key].Line, e.child(key), "%s has the lease %s, which is that of %s (line %d): write another lease.name or lease.namespace for one of them",
		e.Name, lease, first.Name, first.line)
}

// take records who has a key, or returns who has had it before.
func take[K comparable](taken map[K]entry, key K, e entry) (first entry, twice bool) {
	if first, twice = taken[key]; !twice {
		taken[key] = e
	}
	return first, twice
}
