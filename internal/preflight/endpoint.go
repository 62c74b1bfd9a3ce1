package preflight

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// lookupTimeout bounds the question for the addresses of a host.
	lookupTimeout = 10 * time.Second
	// soon is the time before the end of a certificate from which on it is a warning: cert-manager renews a certificate
	// when a third of its time is left, a month by default.
	soon = 14 * 24 * time.Hour
)

// endpointFacts is what is known of a driver's endpoint.
type endpointFacts struct {
	addresses []netip.Addr // of the host; none for a socket
	lookupErr error
	csiclient.Examination
}

// examine asks DNS and the driver. It blocks until the driver has answered, a step has failed or ctx ends.
func examine(ctx context.Context, d registry.Driver) endpointFacts {
	var f endpointFacts
	if host := d.Endpoint.Host(); host != "" {
		limited, cancel := context.WithTimeout(ctx, lookupTimeout)
		f.addresses, f.lookupErr = net.DefaultResolver.LookupNetIP(limited, "ip", host)
		cancel()
		if f.lookupErr != nil {
			return f
		}
	}
	f.Examination = csiclient.Examine(ctx, d)
	return f
}

// endpointChecks decides on the facts. The checks behind one that failed are skipped.
func endpointChecks(d registry.Driver, f endpointFacts, u usage, now time.Time) []Check {
	var checks []Check
	earlier := "" // check that failed
	add := func(name string, check func() Check) {
		if earlier != "" {
			checks = append(checks, skipped(name, earlier))
			return
		}
		c := check()
		checks = append(checks, c)
		if c.Result == Failed && name != "probe" { // the next calls are made all the same
			earlier = name
		}
	}
	tcp := d.Endpoint.Network() == "tcp"
	if tcp {
		add("dns", func() Check { return checkDNS(d.Endpoint, f) })
	}
	add("connect", func() Check { return checkConnect(d.Endpoint, f) })
	if tcp {
		add("certificate", func() Check { return checkCertificate(d, f, now) })
	}
	add("name", func() Check { return checkName(d, f) })
	add("probe", func() Check { return checkProbe(d.Endpoint, f.Probe) })
	add("capabilities", func() Check { return checkCapabilities(d, f, u) })
	return checks
}

// refused is a failed check with what the error of connecting means.
func refused(name string, err error, e registry.Endpoint) Check {
	_, action := diagnosis.ParseRefusal(err.Error(), string(e))
	return failed(name, err.Error(), action)
}

// checkDNS checks that the host has one address of a family: more mean several replicas behind one name. How many Pods are behind
// a cluster IP cannot be seen from here.
func checkDNS(e registry.Endpoint, f endpointFacts) Check {
	const name = "dns"
	if unknown, is := errors.AsType[*net.DNSError](f.lookupErr); is && !unknown.IsNotFound {
		return failed(name, f.lookupErr.Error(), "Check the DNS servers, and that a NetworkPolicy lets the hub ask them: deploy/README.md#dns-outside-of-kube-system.")
	}
	if f.lookupErr != nil {
		return refused(name, f.lookupErr, e)
	}
	var all []string
	families := map[bool]int{}
	for _, a := range f.addresses {
		a = a.Unmap()
		all = append(all, a.String())
		families[a.Is4()]++
	}
	addresses := strings.Join(all, ", ")
	if addresses == e.Host() {
		return ok(name, "the endpoint has an address")
	}
	if families[true] > 1 || families[false] > 1 {
		return warning(name, fmt.Sprintf("%s has the addresses %s: several replicas of the driver may answer", e.Host(), addresses),
			"Let the name lead to one replica at a time: use a Service with a cluster IP and sessionAffinity: ClientIP.")
	}
	if e.IsLocal() {
		return ok(name, e.Host()+" is "+addresses)
	}
	return ok(name, e.Host()+" is "+addresses+"; if this is a Service with several Pods, it must keep to one Pod: sessionAffinity: ClientIP, as adopt writes it")
}

func checkConnect(e registry.Endpoint, f endpointFacts) Check {
	const name = "connect"
	switch {
	case f.Connect.Err == nil && e.Network() == "unix":
		return ok(name, "the socket can be opened")
	case f.Connect.Err == nil:
		return ok(name, "connected to "+f.Remote)
	case errors.Is(f.Connect.Err, fs.ErrPermission):
		c := refused(name, f.Connect.Err, e)
		c.Reason += fmt.Sprintf(" (this process runs as user %d)", os.Getuid())
		return c
	}
	return refused(name, f.Connect.Err, e)
}

// checkCertificate checks the TLS handshake, and for how long the certificates of both sides are valid.
func checkCertificate(d registry.Driver, f endpointFacts, now time.Time) Check {
	const name = "certificate"
	switch {
	case !d.TLS.Enabled() && d.Endpoint.IsLocal():
		return ok(name, "a loopback address needs no TLS")
	case !d.TLS.Enabled():
		return warning(name, "insecure: true: calls carry the Secrets of volumes in plain text", "Give the driver tls: {caFile, certFile, keyFile}, unless the network is trusted.")
	case f.TLS.Err != nil:
		return refused(name, f.TLS.Err, d.Endpoint)
	}
	reason := fmt.Sprintf("the server is %s; its certificate is valid %s, that of the hub %s", d.TLS.ServerName, until(f.Server, now), until(f.Own, now))
	var renew []string
	if f.Server.NotAfter.Before(now.Add(soon)) {
		renew = append(renew, "the certificate of the server")
	}
	if f.Own.NotAfter.Before(now.Add(soon)) {
		renew = append(renew, "the certificate in "+d.TLS.CertFile)
	}
	if len(renew) > 0 {
		return warning(name, reason, "Renew "+strings.Join(renew, " and ")+", or find out why nothing renews it.")
	}
	return ok(name, reason)
}

func until(c *x509.Certificate, now time.Time) string {
	return fmt.Sprintf("until %s (%s)", c.NotAfter.UTC().Format(time.RFC3339), diagnosis.Length(c.NotAfter.Sub(now)))
}

// checkName checks the name that the driver reports. A driver without a name in the configuration may have any.
func checkName(d registry.Driver, f endpointFacts) Check {
	const name = "name"
	if errors.Is(f.PluginInfo.Err, csiclient.ErrName) {
		return failed(name, f.PluginInfo.Err.Error(), "Compare the entry with the name and the socket in the manifest of the driver's controller.")
	}
	if f.PluginInfo.Err != nil {
		return refused(name, f.PluginInfo.Err, d.Endpoint)
	}
	reason := "the driver reports the name " + f.Info.Name
	if f.Info.Version != "" {
		reason += ", version " + csiclient.Truncate(f.Info.Version, csiclient.MaxVersion)
	}
	return ok(name, reason)
}

func checkProbe(e registry.Endpoint, probe csiclient.Step) Check {
	const name = "probe"
	if probe.Err != nil {
		return refused(name, probe.Err, e)
	}
	return ok(name, "the driver is ready")
}

// checkCapabilities checks that the driver can be called, if an attacher has called it before.
func checkCapabilities(d registry.Driver, f endpointFacts, u usage) Check {
	const name = "capabilities"
	capabilities := f.Info.Capabilities.Names()
	switch {
	case f.Capabilities.Err != nil:
		return refused(name, f.Capabilities.Err, d.Endpoint)
	case u.noAttach:
		return warning(name, "attachRequired of CSIDriver "+d.Name+" is false: Kubernetes attaches no volume of the driver", "Remove the driver from the configuration, unless its volumes need an attach.")
	case f.Info.Capabilities.PublishUnpublish:
		return ok(name, strings.Join(capabilities, ", "))
	case u.recorded > 0:
		found := status.DiagnoseCapability(status.Driver{Name: d.Name, Endpoint: string(d.Endpoint), RecordedCalls: u.recorded})
		return failed(name, diagnosis.Because(found.Fact, found.Detail), strings.Join(found.Actions, " "))
	}
	return warning(name, "no "+csiclient.PublishUnpublish+": the hub marks VolumeAttachments attached without a call",
		"Check that "+string(d.Endpoint)+" is the socket of the driver's controller and not of its node plugin.")
}
