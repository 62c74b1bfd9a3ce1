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
	taken := map[claim]entry{}
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

// advice is what to do about a claim of two entries.
var advice = map[string]string{
	claimName: "remove one of them", claimFinalizer: "remove one of them", claimEndpoint: "correct one of them",
	claimLease: "write another lease.name or lease.namespace for one of them",
}

// clash is the error of an entry that cannot be served beside the first that has a claim; where says in brackets where that is.
func (e entry) clash(c claim, first Driver, where string) Error {
	key := "name"
	if _, written := e.values["lease.name"]; written && c.kind == claimLease {
		key = "lease.name"
	} else if c.kind == claimEndpoint {
		key = "endpoint"
	}
	return Error{File: e.file, Line: e.values[key].Line, Path: e.child(key), Message: c.reason(e.Driver, first, where) + ": " + advice[c.kind]}
}

// claim reports what an entry shares with entries before it: one mistake for each of them, as when an entry was copied.
func (p *parser) claim(taken map[claim]entry, e entry) {
	reported := map[string]bool{}
	for _, c := range e.claims() {
		first, twice := taken[c]
		if !twice {
			taken[c] = e
		} else if !reported[first.path] {
			reported[first.path] = true
			p.errors = append(p.errors, e.clash(c, first.Driver, fmt.Sprintf(" (line %d)", first.line)))
		}
	}
}
