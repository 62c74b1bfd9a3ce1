package registry

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// Error is one mistake in a drivers.yaml.
type Error struct {
	File    string // as it was named
	Line    int    // counted from 1; 0 if the file as a whole is meant
	Path    string // of the value, "drivers[1].timeout"; "" if no value is meant
	Message string // what is wrong and what to do; one line
}

// Error returns "file:line: path: message", without the parts that are not known.
func (e Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += ":" + strconv.Itoa(e.Line)
	}
	if e.Path != "" {
		s += ": " + e.Path
	}
	return s + ": " + e.Message
}

// compareErrors orders mistakes by their places.
func compareErrors(a, b Error) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

// Errors is every mistake in a configuration, in order of place. It is what NewFile and ParseManifest fail with (errors.As),
// and never empty then.
type Errors []Error

// Error returns one line for each mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Warning names something in a drivers.yaml that is allowed but probably not meant, or
// not safe. It changes nothing.
type Warning Error

// String is "file:line: warning: path: message".
func (w Warning) String() string {
	e := Error(w)
	e.Path = "warning: " + e.Path
	return e.Error()
}

// warn warns of what was written in the mapping at a path, which is defaults or the entry of a driver.
func (p *parser) warn(d Driver, path string) {
	warn := func(key string, applies bool, message string) {
		if n := p.values[path+"."+key]; n != nil && applies {
			p.warnings = append(p.warnings, Warning{File: p.file, Line: n.Line, Path: path + "." + key, Message: message})
		}
	}
	warn("timeout", d.Timeout < 15*time.Second,
		"cloud storage often takes longer than 15s to attach, and goes on after a call was cut off: raise it for cloud storage")
	warn("workers", d.Workers > 1000, "few drivers can serve more than 1000 calls at once: lower it unless this driver can")
	warn("kubeAPI.burst", d.KubeAPI.Burst > 0 && d.KubeAPI.QPS == 0, "has no effect while kubeAPI.qps is 0: write kubeAPI.qps, or remove it")
	if path == "defaults" {
		warn("insecure", d.Insecure,
			"allows every tcp:// endpoint without tls, also of discovered drivers: write it only in the entries that need it")
		return
	}
	warn("name", d.Lease.Name == "" && d.Name != strings.ToLower(d.Name),
		"the name of a Lease cannot contain capital letters, so the lease of this driver is "+LeaseName(d.Name)+", which csi-attacher does not use: stop other attachers of its volumes, or write lease.name")
	// The hub logs no such warning, because it has a namespace for its leases. An entry without mode gets none either: it may never
	// have had a csi-attacher.
	warn("mode", d.Mode == ModeActive && d.Lease.Namespace == "" && p.values[path+".lease.namespace"] == nil,
		"lease.namespace is not set, so the hub holds the lease of this driver in its own namespace: a csi-attacher that holds its Lease in another namespace would attach and detach at the same time. Write lease.namespace: the namespace of that Lease, or \"\" if the driver has no csi-attacher")
	unix, plain := d.Endpoint.Network() == "unix", !d.TLS.Enabled()
	warn("insecure", plain && unix && d.Insecure, "has no effect on a unix socket: remove it")
	who := "anyone on the network path can read the secrets of volumes and answer in the driver's place"
	if d.Endpoint.IsLocal() {
		who = "any process on this machine can listen in the driver's place and receive the secrets of volumes"
	}
	warn("endpoint", plain && !unix, "without tls, "+who)
}

// maxQuoted bounds the bytes of a user's text that a message repeats.
const maxQuoted = 120

// quote returns a user's text for a message: in quotes, on one line, cut to maxQuoted, with
// escapes for look-alikes of ASCII letters.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.QuoteToASCII(s)
	}
	return strconv.QuoteToASCII(s[:maxQuoted]) + "..."
}

// clip is quote without the quotes where no escape is needed.
func clip(s string) string {
	if quoted := quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
