package registry

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// driverPlaceholder stands for the name of the driver in an endpointTemplate.
const driverPlaceholder = "{driver}"

// Discovery says where to look for drivers that are not listed one by one. They are served
// with the defaults.
type Discovery struct {
	CSIDrivers CSIDriverDiscovery
}

// CSIDriverDiscovery says which drivers are taken from CSIDriver objects.
type CSIDriverDiscovery struct {
	Enabled bool
	// EndpointTemplate is the endpoint of drivers whose object has no EndpointAnnotation;
	// "{driver}" in it stands for the name. "" means that they are left out.
	EndpointTemplate string
	// AllowedEndpoints are all that an object can make the hub contact.
	AllowedEndpoints []EndpointPattern
	// TLS secures what is found at TCP endpoints; zero for none. Without a ServerName
	// each driver's certificate must be for the host of its endpoint.
	TLS TLS
}

// tls returns what secures the connection to an endpoint that was found.
func (c CSIDriverDiscovery) tls(e Endpoint) TLS {
	if !c.TLS.Enabled() || e.Network() != "tcp" {
		return TLS{}
	}
	t := c.TLS
	if t.ServerName == "" {
		t.ServerName = e.Host()
	}
	return t
}

// check returns an error if a driver that was found may not be contacted.
func (c CSIDriverDiscovery) check(d Driver) error {
	if err := CheckName(d.Name); err != nil {
		return err
	}
	if err := checkEndpoint(string(d.Endpoint)); err != nil {
		return err
	}
	if !slices.ContainsFunc(c.AllowedEndpoints, func(p EndpointPattern) bool { return p.Allows(d.Endpoint) }) {
		return fmt.Errorf("endpoint %s is not allowed by discovery.csiDrivers.allowedEndpoints, nothing is contacted", quote(string(d.Endpoint)))
	}
	if d.CheckTransport() != nil {
		return fmt.Errorf("%s without TLS would carry secrets in plain text: write discovery.csiDrivers.tls, or list the driver with tls of its own",
			quote(string(d.Endpoint)))
	}
	return nil
}

var discoveryMapping = mapping{
	{key: "csiDrivers", schema: csiDriversMapping.schema("drivers from CSIDriver objects")},
}

var csiDriversMapping = mapping{
	{key: "enabled", required: true, schema: boolean().schema},
	{key: "endpointTemplate", schema: pattern("endpoint of drivers whose CSIDriver object has no annotation attach-hub/endpoint", `\{driver\}`)},
	{key: "allowedEndpoints", schema: distinct("the only endpoints that a CSIDriver object may name", pattern("an endpoint with * in it", `^(unix:///.|tcp://.)`))},
	{key: "tls", schema: tlsMapping.schema("mutual TLS to all discovered tcp:// endpoints")},
}

// discovery reads where drivers are looked for.
func (p *parser) discovery(n *yaml.Node) Discovery {
	var d Discovery
	o := p.object(n, "discovery", discoveryMapping)
	if n, written := o.values["csiDrivers"]; written {
		d.CSIDrivers = p.csiDrivers(p.object(n, o.child("csiDrivers"), csiDriversMapping))
	}
	return d
}

func (p *parser) csiDrivers(o object) CSIDriverDiscovery {
	var c CSIDriverDiscovery
	truth := boolean()
	if n, ok := p.required(o, "enabled", truth.want); ok {
		enabled, err := truth.read(n)
		if err != nil {
			p.report(n.Line, o.child("enabled"), err.Error())
		}
		c.Enabled = enabled
	}
	if n, written := o.values["endpointTemplate"]; written {
		c.EndpointTemplate = p.checked(n, o.child("endpointTemplate"), "an endpoint like unix:///csi/{driver}/csi.sock", checkTemplate)
	}
	n, written := o.values["allowedEndpoints"]
	if written {
		c.AllowedEndpoints = p.patterns(n, o.child("allowedEndpoints"))
	}
	if n, written := o.values["tls"]; written {
		c.TLS = p.tls(n, o.child("tls"), "")
	}
	empty := written && n.Kind == yaml.SequenceNode && len(n.Content) == 0
	if c.Enabled && (empty || !written && !o.misspelt["allowedEndpoints"]) {
		p.report(o.line, o.child("allowedEndpoints"), "missing: without it no endpoint is allowed; write a list of patterns like unix:///csi/*")
	}
	return c
}

// patterns reads a list of patterns.
func (p *parser) patterns(n *yaml.Node, path string) []EndpointPattern {
	var list []EndpointPattern
	p.strings(n, path, "a list of patterns like unix:///csi/*", func(s string) error {
		pattern, err := ParseEndpointPattern(s)
		if err == nil {
			list = append(list, pattern)
		}
		return err
	})
	return list
}

// strings reads a list of different strings and returns those that pass the check.
func (p *parser) strings(n *yaml.Node, path, want string, check func(string) error) []string {
	if n.Kind != yaml.SequenceNode {
		p.report(n.Line, path, mistyped(n, want).Error())
		return nil
	}
	list, err := checkedStrings(n, check)
	p.reportValue(n, path, err)
	return list
}

// checkTemplate returns an error for a bad endpointTemplate.
func checkTemplate(s string) error {
	if !strings.Contains(s, driverPlaceholder) {
		return fmt.Errorf("%s does not contain %s, so all drivers would share one endpoint: write an endpoint like unix:///csi/{driver}/csi.sock",
			quote(s), driverPlaceholder)
	}
	filled := strings.ReplaceAll(s, driverPlaceholder, "d")
	if strings.ContainsAny(filled, "{}") {
		return fmt.Errorf("%s: only {driver} is replaced in a template: remove other braces", quote(s))
	}
	if _, err := ParseEndpoint(filled); err != nil {
		return fmt.Errorf("is not a valid template: for a driver named d, %w", err)
	}
	return nil
}
