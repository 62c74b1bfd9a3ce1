package registry

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// TLS is how a connection to a driver is secured: with TLS in which both sides
// show a certificate. The zero value is none. The files need not be there when
// drivers.yaml is read; whoever connects reads them.
type TLS struct {
	CAFile     string // absolute; PEM, the authorities that the driver's certificate must come from
	CertFile   string // absolute; PEM, the certificate of this side with what leads to its authority
	KeyFile    string // absolute; PEM, the key of that certificate
	ServerName string // domain name or IP address that the driver's certificate must be for
}

// Enabled reports whether there is TLS.
func (t TLS) Enabled() bool { return t != TLS{} }

// CheckTransport returns an error if no secrets may be sent over a connection to the
// driver: TCP to another machine without TLS, unless Insecure allows it.
func (d Driver) CheckTransport() error {
	if d.TLS.Enabled() || d.Insecure || d.Endpoint.IsLocal() {
		return nil
	}
	return fmt.Errorf("%s without TLS would carry secrets in plain text: give the driver tls: {caFile, certFile, keyFile}, or insecure: true if the network is trusted",
		quote(string(d.Endpoint)))
}

var tlsMapping = mapping{
	{key: "caFile", required: true, schema: pattern("file with the certificate authorities that sign the driver's certificate", "^/.")},
	{key: "certFile", required: true, schema: pattern("file with the certificate of the hub", "^/.")},
	{key: "keyFile", required: true, schema: pattern("file with the key of that certificate", "^/.")},
	{key: "serverName", schema: pattern("name in the driver's certificate; default: the host of the endpoint", `^[-0-9a-z.:]+$`)},
}

// tls reads how the connection to an endpoint is secured. The server name is that of
// the endpoint if none is written.
func (p *parser) tls(n *yaml.Node, path string, endpoint Endpoint) TLS {
	o := p.object(n, path, tlsMapping)
	if n.Kind != yaml.MappingNode {
		return TLS{}
	}
	t := TLS{
		CAFile:     p.absoluteFile(o, "caFile", "/tls/ca.crt"),
		CertFile:   p.absoluteFile(o, "certFile", "/tls/tls.crt"),
		KeyFile:    p.absoluteFile(o, "keyFile", "/tls/tls.key"),
		ServerName: endpoint.Host(),
	}
	if _, written := o.values["serverName"]; written {
		t.ServerName = p.text(o, "serverName", "the name in the certificate of the driver", checkServerName)
	}
	return t
}

func checkServerName(name string) error {
	canonical, err := canonicalHost(name)
	if err == nil && canonical != name {
		err = fmt.Errorf("%s must be written as %s", quote(name), canonical)
	}
	return err
}

// absoluteFile reads a key that must be the absolute path of a file.
func (p *parser) absoluteFile(o object, key, example string) string {
	return p.text(o, key, "the absolute path of a file like "+example, func(s string) error { return checkFile(s, example) })
}

func checkFile(s, example string) error {
	if !strings.HasPrefix(s, "/") {
		return fmt.Errorf("%s is not an absolute path: write a path like %s", quote(s), example)
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return errors.New("the path contains a control character: remove it")
	}
	if clean := path.Clean(s); clean != s || clean == "/" {
		return fmt.Errorf("%s must be the path of a file, and must not contain \"/./\", \"/../\" or \"//\" or end with \"/\": write a path like %s",
			quote(s), example)
	}
	return nil
}

// transport reads what secures the connection to a driver, of which endpoint and
// settings were read, and reports what does not go together.
func (p *parser) transport(o object, d Driver, s scope) Driver {
	n, written := o.values["tls"]
	if written {
		d.TLS = p.tls(n, o.child("tls"), d.Endpoint)
	}
	own, insecureHere := o.values["insecure"]
	switch {
	case written && insecureHere && d.Insecure:
		p.report(own.Line, o.child("insecure"), "contradicts tls: remove one of them")
	case written && d.Endpoint.Network() == "unix":
		p.report(n.Line, o.child("tls"), "a unix socket does not use TLS: remove it")
	case !written && !o.misspelt["tls"] && !o.misspelt["insecure"] && d.Endpoint != "" && s.readable("insecure"):
		if err := d.CheckTransport(); err != nil {
			p.report(o.values["endpoint"].Line, o.child("endpoint"), err.Error())
		}
	}
	if written {
		d.Insecure = false // of the defaults: what the entry says goes before them
	}
	p.warnTransport(o, d)
	return d
}
