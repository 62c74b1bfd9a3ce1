package registry

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// driverPlaceholder is replaced by the name of the driver in an endpointTemplate.
const driverPlaceholder = "{driver}"

// Discovery says which drivers that are not listed one by one are taken from CSIDriver objects. They are served
// with the defaults.
type Discovery struct {
	Enabled bool
	// EndpointTemplate is the endpoint of drivers whose object has no EndpointAnnotation;
	// "{driver}" in it is replaced by the name. "" means that they are left out.
	EndpointTemplate string
	// AllowedEndpoints are all that an object can make the hub contact.
	AllowedEndpoints []EndpointPattern
	// TLS secures what is found at TCP endpoints; zero for none. Without a ServerName
	// each driver's certificate must be for the host of its endpoint.
	TLS TLS
}

// check returns an error if a driver that was found may not be contacted.
func (c Discovery) check(d Driver) error {
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

var discoveryTable = table[Discovery]{
	value("enabled", boolean(), func(d *Discovery) *bool { return &d.Enabled }).must(),
	value("endpointTemplate", text[string]("an endpoint like unix:///csi/{driver}/csi.sock", checkTemplate,
		pattern(`\{driver\}`).with("endpoint of drivers whose CSIDriver object has no annotation attach-hub/endpoint")),
		func(d *Discovery) *string { return &d.EndpointTemplate }),
	value("allowedEndpoints", allowedEndpoints(), func(d *Discovery) *[]EndpointPattern { return &d.AllowedEndpoints }),
	inner("tls", "mutual TLS to all discovered tcp:// endpoints", tlsTable, func(d *Discovery) *TLS { return &d.TLS }),
}

func readDiscovery(p *parser, n *yaml.Node, path string, c *Config) {
	d := &c.discovery
	discoveryTable.read(p, n, path, d)
	allowed := path + ".allowedEndpoints"
	if d.Enabled && d.AllowedEndpoints == nil && !p.misread[allowed] && !p.misspelt[allowed] {
		p.report(n.Line, allowed, "missing: without it no endpoint is allowed; write a list of patterns like unix:///csi/*")
	}
}

// checkTemplate returns an error for a bad endpointTemplate.
func checkTemplate(s string) error {
	if !strings.Contains(s, driverPlaceholder) {
		return fmt.Errorf("%s does not contain %s, so all drivers would share one endpoint: write an endpoint like unix:///csi/{driver}/csi.sock",
			quote(s), driverPlaceholder)
	}
	filled := strings.ReplaceAll(s, driverPlaceholder, "d")
	if _, err := ParseEndpoint(filled); err != nil {
		return fmt.Errorf("is not a valid template: for a driver named d, %w", err)
	}
	return nil
}
