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

// driverTable is an element of drivers.
var driverTable = append(table[Driver]{
	value("name", text[string]("the name that the driver reports", CheckName, schema{
		"type": "string", "description": "the name that the driver reports", "pattern": nameForm.String(), "maxLength": maxNameLength,
	}), func(d *Driver) *string { return &d.Name }).must(),
	value("endpoint", text[Endpoint]("an endpoint like unix:///path/to/csi.sock or tcp://host:port", checkEndpoint,
		pattern(`^(unix:///.|tcp://.*:[0-9]+$)`).with("where its controller listens: unix:///path/to/csi.sock or tcp://host:port")),
		func(d *Driver) *Endpoint { return &d.Endpoint }).must(),
	inner("tls", "mutual TLS to a tcp:// endpoint", tlsTable, func(d *Driver) *TLS { return &d.TLS }),
}, settingTable...)

// entry is one element of drivers.
type entry struct {
	parser *parser // of its file
	path   string  // "drivers[1]"
	line   int
	Driver // Name and Endpoint are "" if they could not be read
}

// readDrivers reads the list of drivers.
func readDrivers(p *parser, n *yaml.Node, path string, c *Config) {
	if n.Kind != yaml.SequenceNode {
		p.report(n.Line, path, mistyped(n, wantDrivers).Error())
		return
	}
	taken := map[reservation]entry{}
	for i, element := range n.Content {
		e := entry{parser: p, path: fmt.Sprintf("%s[%d]", path, i), line: element.Line}
		e.Settings, e.Source = c.defaults, fmt.Sprintf("%s:%d", p.file, element.Line)
		driverTable.read(p, element, e.path, &e.Driver)
		if element.Kind != yaml.MappingNode {
			continue
		}
		p.finish(&e.Settings, e.path)
		p.transport(&e.Driver, e.path)
		p.warn(e.Driver, e.path)
		p.reserve(taken, e)
		c.drivers[e.Name] = e.Driver
		c.entries = append(c.entries, e)
	}
}

// CheckName returns an error if a name cannot be the spec.attacher of a VolumeAttachment.
func CheckName(name string) error {
	if len(name) > maxNameLength || !nameForm.MatchString(name) {
		return fmt.Errorf("%s is not a valid name of a CSI driver: write a domain name like ebs.csi.aws.com (letters, digits, '-' and '.', a letter or a digit at both ends of each part, at most %d characters)",
			quote(name), maxNameLength)
	}
	return nil
}

// error is the error of an entry that cannot be served beside the first that has a reservation; where says in brackets where that is.
func (e entry) error(c reservation, first Driver, where string) Error {
	path := e.path + ".name"
	if c.kind == reservedEndpoint {
		path = e.path + ".endpoint"
	} else if lease := e.path + ".lease.name"; c.kind == reservedLease && e.parser.values[lease] != nil {
		path = lease
	}
	return Error{File: e.parser.file, Line: e.parser.values[path].Line, Path: path, Message: c.reason(e.Driver, first, where)}
}

// reserve reports what an entry shares with entries before it: one mistake for each of them, as when an entry was copied.
func (p *parser) reserve(taken map[reservation]entry, e entry) {
	reported := map[string]bool{}
	for _, c := range e.reservations() {
		first, twice := taken[c]
		if !twice {
			taken[c] = e
		} else if !reported[first.path] {
			reported[first.path] = true
			p.errors = append(p.errors, e.error(c, first.Driver, fmt.Sprintf(" (line %d)", first.line)))
		}
	}
}
