package registry

import (
	"fmt"
	"regexp"

	"gopkg.in/yaml.v3"
)

const maxNameLength = 63

// nameForm is the form that the API server demands of spec.attacher, which is stricter than
// the CSI spec: a domain name in any case. (validation.IsDNS1123Subdomain of the name in
// small letters would also accept letters that become ASCII ones, as the Kelvin sign.)
var nameForm = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*$`)

const wantDrivers = "a list of drivers, or [] for none"

// driverMapping is an element of drivers.
var driverMapping = append(mapping{
	{key: "name", required: true, schema: schema{
		"type": "string", "description": "the name that the driver reports", "pattern": nameForm.String(), "maxLength": maxNameLength,
	}},
	{key: "endpoint", required: true,
		schema: pattern("where its controller listens: unix:///path/to/csi.sock or tcp://host:port", `^(unix:///.|tcp://.*:[0-9]+$)`)},
	{key: "tls", schema: tlsMapping.schema("mutual TLS to a tcp:// endpoint")},
}, settingFields(false)...)

// entry is one element of drivers.
type entry struct {
	object
	file   string
	Driver // Name and Endpoint are "" if they could not be read
}

// entries reads the list of drivers.
func (p *parser) entries(n *yaml.Node, path string, defaults scope) (snapshot Snapshot, list []entry) {
	snapshot = Snapshot{}
	if n.Kind != yaml.SequenceNode {
		p.report(n.Line, path, mistyped(n, wantDrivers).Error())
		return snapshot, nil
	}
	taken := claims[entry]{}
	for i, element := range n.Content {
		o := p.object(element, fmt.Sprintf("%s[%d]", path, i), driverMapping)
		if element.Kind != yaml.MappingNode {
			continue
		}
		e := entry{object: o, file: p.file, Driver: p.driver(o, defaults)}
		p.claim(taken, e)
		snapshot[e.Name] = e.Driver
		list = append(list, e)
	}
	return snapshot, list
}

// driver reads the driver of an entry.
func (p *parser) driver(o object, defaults scope) Driver {
	s := p.settings(o, defaults)
	d := Driver{Settings: s.Settings, Source: fmt.Sprintf("%s:%d", p.file, o.line)}
	d.Name = p.text(o, "name", "the name that the driver reports", CheckName)
	p.warnName(o, d)
	p.warnLease(o, d)
	d.Endpoint = Endpoint(p.text(o, "endpoint", "an endpoint like unix:///path/to/csi.sock or tcp://host:port", checkEndpoint))
	return p.transport(o, d, s)
}

// CheckName returns an error if a name cannot be the spec.attacher of a VolumeAttachment.
func CheckName(name string) error {
	if len(name) > maxNameLength {
		return fmt.Errorf("%s has %d characters, the limit for the name of a CSI driver is %d: write the name that the driver reports",
			quote(name), len(name), maxNameLength)
	}
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%s is not a valid name of a CSI driver: write a domain name like ebs.csi.aws.com (letters, digits, '-' and '.', a letter or a digit at both ends of each part)",
			quote(name))
	}
	return nil
}

// claim reports what an entry shares with an entry before it.
func (p *parser) claim(taken claims[entry], e entry) {
	if e.Name != "" {
		line, path := e.values["name"].Line, e.child("name")
		first, twice := taken.claim(driverName(e.Name), e)
		if twice {
			p.reportf(line, path, "the driver %s is already named on line %d: remove one of them", e.Name, first.values["name"].Line)
			if first.Endpoint == e.Endpoint {
				return // one mistake, not two: the entry was copied
			}
		} else if first, twice := taken.claim(sanitizedName(e.Name), e); twice {
			p.reportf(line, path, "%s and %s (line %d) both become %s in finalizers and leases, so one hub cannot serve both: remove one of them",
				e.Name, first.Name, first.values["name"].Line, SanitizedName(e.Name))
		} else {
			p.claimLease(taken, e)
		}
	}
	if e.Endpoint == "" {
		return
	}
	if first, twice := taken.claim(e.Endpoint, e); twice {
		p.reportf(e.values["endpoint"].Line, e.child("endpoint"), "%s is already the endpoint on line %d, and only one driver can answer there: correct one of them",
			quote(string(e.Endpoint)), first.values["endpoint"].Line)
	}
}

// claimLease reports a lease that a driver before has: the holder for one of them would be
// taken to serve the other.
func (p *parser) claimLease(taken claims[entry], e entry) {
	lease := e.LeaseOf()
	first, twice := taken.claim(lease, e)
	if !twice {
		return
	}
	key := "name"
	if _, written := e.values["lease.name"]; written {
		key = "lease.name"
	}
	p.reportf(e.values[key].Line, e.child(key), "%s uses the lease %s, as %s does (line %d): write another lease.name or lease.namespace for one of them",
		e.Name, lease, first.Name, first.line)
}
