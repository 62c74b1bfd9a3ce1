package registry

import (
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// Warning names something in a drivers.yaml that is allowed but probably not meant, or
// not safe. It changes nothing.
type Warning Error

// String is "file:line: warning: path: message".
func (w Warning) String() string {
	e := Error(w)
	e.Message, e.Path = e.Path+": "+e.Message, "warning"
	return e.Error()
}

// Log logs the warning.
func (w Warning) Log(logger klog.Logger) {
	logger.Info("Configuration warning", "warning", w.String())
}

// isLike reports whether two warnings differ in nothing but the line, which moves with each
// edit above it.
func (w Warning) isLike(other Warning) bool {
	w.Line = other.Line
	return w == other
}

// Warnings returns the warnings of the file, in order of line. It is not to be changed.
func (c *Config) Warnings() []Warning { return c.warnings }

// settingWarning is a warning where a setting is written with a certain value.
type settingWarning struct {
	key     string
	applies func(s Settings) bool
	message string
}

var settingWarnings = []settingWarning{
	{"timeout", func(s Settings) bool { return s.Timeout < 15*time.Second },
		"cloud storage often takes longer than 15s to attach, and goes on after a call was cut off: raise it for cloud storage"},
	{"workers", func(s Settings) bool { return s.Workers > 1000 },
		"few drivers can serve more than 1000 calls at once: lower it unless this driver can"},
	{"kubeAPI.burst", func(s Settings) bool { return s.KubeAPI.Burst > 0 && s.KubeAPI.QPS == 0 },
		"has no effect while kubeAPI.qps is 0: write kubeAPI.qps, or remove it"},
}

// warnSettings warns of settings that were written in one mapping and could be read.
func (p *parser) warnSettings(o object, s scope) {
	for _, w := range settingWarnings {
		if n, written := o.values[w.key]; written && s.readable(w.key) && w.applies(s.Settings) {
			p.warn(n.Line, o.child(w.key), w.message)
		}
	}
}

// warnDefaults warns of settings that are a risk in defaults only.
func (p *parser) warnDefaults(o object, s Settings) {
	if n, written := o.values["insecure"]; written && s.Insecure {
		p.warn(n.Line, o.child("insecure"), "allows every tcp:// endpoint without tls, also of discovered drivers: write it only in the entries that need it")
	}
}

// warnName warns of a driver for which csi-attacher cannot have a lease.
func (p *parser) warnName(o object, d Driver) {
	if d.Lease.Name == "" && d.Name != strings.ToLower(d.Name) {
		p.warn(o.values["name"].Line, o.child("name"),
			"the name of a Lease cannot contain capital letters, so the lease of this driver is "+LeaseName(d.Name)+", which csi-attacher does not use: stop other attachers of its volumes, or write lease.name")
	}
}

// warnLease warns of an entry that was made active without saying which Lease csi-attacher holds. The hub logs no such
// warning, because it has a namespace for its leases. An entry without mode gets none either: it may never have had a
// csi-attacher.
func (p *parser) warnLease(o object, d Driver) {
	mode, written := o.values["mode"]
	if _, decided := o.values["lease.namespace"]; written && d.Mode == ModeActive && d.Lease.Namespace == "" && !decided {
		p.warn(mode.Line, o.child("mode"),
			"lease.namespace is not set, so the hub holds the lease of this driver in its own namespace: a csi-attacher that holds its Lease in another namespace would attach and detach at the same time. Write lease.namespace: the namespace of that Lease, or \"\" if the driver has no csi-attacher")
	}
}

// warnTransport warns of an endpoint over which everybody can listen.
func (p *parser) warnTransport(o object, d Driver) {
	own, insecureHere := o.values["insecure"]
	insecureHere = insecureHere && d.Insecure
	endpoint, written := o.values["endpoint"]
	switch {
	case !written || d.Endpoint == "" || d.TLS.Enabled():
	case d.Endpoint.Network() == "unix" && insecureHere:
		p.warn(own.Line, o.child("insecure"), "has no effect on a unix socket: remove it")
	case d.Endpoint.Network() == "unix":
	case d.Endpoint.IsLocal():
		p.warn(endpoint.Line, o.child("endpoint"), "without tls, any process on this machine can listen in the driver's place and receive the secrets of volumes")
	default:
		p.warn(endpoint.Line, o.child("endpoint"), "without tls, anyone on the network path can read the secrets of volumes and answer in the driver's place")
	}
}

func (p *parser) warn(line int, path, message string) {
	p.warnings = append(p.warnings, Warning{File: p.file, Line: line, Path: path, Message: message})
}
