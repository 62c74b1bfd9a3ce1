package registry

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// Warning is something in a drivers.yaml that is allowed and probably not meant, or
// not safe. It changes nothing.
type Warning Error

// String is "file:line: warning: path: message".
func (w Warning) String() string {
	e := Error(w)
	e.Message, e.Path = e.Path+": "+e.Message, "warning"
	return e.Error()
}

// Log says it to whoever reads the log of a program that goes on all the same.
func (w Warning) Log(logger klog.Logger) {
	logger.Info("Warning: something in the config is doubtful", "warning", w.String())
}

// isLike says that two warnings are the same to people: lines move.
func (w Warning) isLike(other Warning) bool {
	w.Line = other.Line
	return w == other
}

// Warnings returns what is doubtful in the file, in order of line. It is not to be
// changed.
func (c *Config) Warnings() []Warning { return c.warnings }

// doubt is a value of a setting that is doubtful where it is written.
type doubt struct {
	key     string
	is      func(s Settings) bool
	message string
}

var doubts = []doubt{
	{"timeout", func(s Settings) bool { return s.Timeout < 15*time.Second },
		"clouds often take longer than 15s to attach, and a call that is cut off leaves them working: raise it if this is one"},
	{"workers", func(s Settings) bool { return s.Workers > 1000 },
		"few drivers stand more than 1000 calls at once: lower it if this one does not"},
	{"kubeAPI.burst", func(s Settings) bool { return s.KubeAPI.Burst > 0 && s.KubeAPI.QPS == 0 },
		"has no effect while kubeAPI.qps is 0: write kubeAPI.qps, or remove it"},
}

// doubtSettings warns of what was written at one place and could be read.
func (p *parser) doubtSettings(o object, l level) {
	for _, d := range doubts {
		if n, written := o.values[d.key]; written && l.readable(d.key) && d.is(l.Settings) {
			p.warn(n.Line, o.child(d.key), d.message)
		}
	}
}

// doubtDefaults warns of what is doubtful in defaults only.
func (p *parser) doubtDefaults(o object, s Settings) {
	if n, written := o.values["insecure"]; written && s.Insecure {
		p.warn(n.Line, o.child("insecure"), "every tcp:// endpoint may go without tls, those of drivers that are discovered too: write it at the drivers that need it")
	}
}

// doubtName warns of a driver for which csi-attacher cannot have a lease.
func (p *parser) doubtName(o object, d Driver) {
	if d.Lease.Name == "" && d.Name != strings.ToLower(d.Name) {
		p.warn(o.values["name"].Line, o.child("name"),
			"a Lease can have no capitals in its name, so that this driver's is "+LeaseName(d.Name)+", which no csi-attacher knows: stop others that attach its volumes, or write lease.name")
	}
}

// doubtTransport warns of an endpoint over which everybody can listen.
func (p *parser) doubtTransport(o object, d Driver) {
	own, insecureHere := o.values["insecure"]
	insecureHere = insecureHere && d.Insecure
	endpoint, written := o.values["endpoint"]
	switch {
	case !written || d.Endpoint == "" || d.TLS.Enabled():
	case d.Endpoint.Network() == "unix" && insecureHere:
		p.warn(own.Line, o.child("insecure"), "a unix socket is safe without tls: remove it")
	case d.Endpoint.Network() == "unix":
	case d.Endpoint.IsLocal():
		p.warn(endpoint.Line, o.child("endpoint"), "there is no tls: every process of this machine can listen in the driver's place and be sent the secrets of volumes")
	default:
		p.warn(endpoint.Line, o.child("endpoint"), "there is no tls: everyone on the way can read the secrets of volumes and answer in the driver's place")
	}
}

func (p *parser) warn(line int, path, message string) {
	p.warnings = append(p.warnings, Warning{File: p.file, Line: line, Path: path, Message: message})
}

func sortWarnings(all []Warning) {
	slices.SortStableFunc(all, func(a, b Warning) int { return cmp.Compare(a.Line, b.Line) })
}
