package registry

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"unicode"
)

// TLS is how a connection to a driver is secured: with TLS in which both sides
// show a certificate. The zero value is none. The files need not be there when
// drivers.yaml is read; they are read at each connect.
type TLS struct {
	CAFile     string // absolute; PEM, the CAs of which one must have signed the driver's certificate
	CertFile   string // absolute; PEM, the certificate of this side with its chain to the CA
	KeyFile    string // absolute; PEM, the key of that certificate
	ServerName string // domain name or IP address that the driver's certificate must be for
}

// Enabled reports whether there is TLS.
func (t TLS) Enabled() bool { return t != TLS{} }

// to returns what secures the connection to an endpoint.
func (t TLS) to(e Endpoint) TLS {
	if !t.Enabled() || e.Network() != "tcp" {
		return TLS{}
	}
	t.ServerName = cmp.Or(t.ServerName, e.Host())
	return t
}

// CheckTransport returns an error if no secrets may be sent over a connection to the
// driver: TCP to another machine without TLS, unless Insecure allows it.
func (d Driver) CheckTransport() error {
	if d.TLS.Enabled() || d.Insecure || d.Endpoint.IsLocal() {
		return nil
	}
	return fmt.Errorf("%s without TLS would carry secrets in plain text: give the driver tls: {caFile, certFile, keyFile}, or insecure: true if the network is trusted",
		quote(string(d.Endpoint)))
}

var tlsTable = table[TLS]{
	file("caFile", "CA bundle that the driver's certificate is checked against", "/tls/ca.crt",
		func(t *TLS) *string { return &t.CAFile }),
	file("certFile", "file with the certificate of the hub", "/tls/tls.crt", func(t *TLS) *string { return &t.CertFile }),
	file("keyFile", "file with the key of that certificate", "/tls/tls.key", func(t *TLS) *string { return &t.KeyFile }),
	value("serverName", text[string]("the name in the certificate of the driver", checkHost,
		pattern(`^[-0-9a-z.:]+$`).with("name in the driver's certificate; default: the host of the endpoint")),
		func(t *TLS) *string { return &t.ServerName }),
}

// file returns the field of a key that must be the absolute path of a file.
func file(key, description, example string, in func(*TLS) *string) field[TLS] {
	return value(key, text[string]("the absolute path of a file like "+example,
		func(s string) error { return checkFile(s, example) }, pattern("^/.").with(description)), in).must()
}

func checkFile(s, example string) error {
	if clean := path.Clean(s); clean != s || !path.IsAbs(s) || clean == "/" || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%s must be the absolute path of a file, without \"/./\", \"/../\", \"//\" or \"/\" at its end: write a path like %s", quote(s), example)
	}
	return nil
}

// transport completes what secures the connection to a driver, of which the entry at a path was read, and reports what does not go
// together.
func (p *parser) transport(d *Driver, path string) {
	tls, insecure := p.values[path+".tls"], p.values[path+".insecure"]
	switch {
	case tls != nil && insecure != nil && d.Insecure:
		p.report(insecure.Line, path+".insecure", "contradicts tls: remove one of them")
	case tls != nil && d.Endpoint.Network() == "unix":
		p.report(tls.Line, path+".tls", "a unix socket does not use TLS: remove it")
	case tls == nil && !p.misspelt[path+".tls"] && !p.misspelt[path+".insecure"] && d.Endpoint != "" &&
		!p.misread["defaults.insecure"] && !p.misread[path+".insecure"]:
		if err := d.CheckTransport(); err != nil {
			p.report(p.values[path+".endpoint"].Line, path+".endpoint", err.Error())
		}
	}
	if tls != nil {
		d.TLS = d.TLS.to(d.Endpoint)
		d.Insecure = false // of the defaults: what the entry says goes before them
	}
}
