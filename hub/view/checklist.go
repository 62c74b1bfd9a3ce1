package view

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// answersTTL is how long the answers to a checklist's requests count: a page asks every few seconds.
	answersTTL = 10 * time.Second
	// answersTimeout bounds all requests for a checklist.
	answersTimeout = 10 * time.Second
	// mostSecrets bounds the Secrets that are read: a StorageClass can give each volume its own.
	mostSecrets = 100
)

// RightsFunc returns the rights that this process lacks to serve a driver with a lease. The zero Name stands for no lease.
type RightsFunc func(context.Context, lease.Name) (missing []rights.Right, err error)

// answers are the checks of a driver that need requests to the API server, to DNS or to the endpoint.
type answers struct {
	at                        time.Time
	endpoint, secrets, rights status.Check // of the endpoint: what is known beside the connection
}

// Checklist implements status.Source: it returns the conditions for serving a driver, nil if it is not served. It waits for the
// API server, for at most some seconds.
func (v *View) Checklist(ctx context.Context, driver string) []status.Check {
	look := v.Served()[driver]
	if look == nil {
		return nil
	}
	d := look()
	v.Ask(ctx, d)
	now := time.Now()
	return v.checklist(v.complete(d, now), now)
}

// Ask makes the requests of a driver's checklist, unless the last answers are new. Callers at the same time share the requests of the
// first.
func (v *View) Ask(ctx context.Context, d Driver) {
	if time.Since(v.lastAnswers(d).at) >= answersTTL {
		_, _, _ = v.asking.Do(d.Name, func() (any, error) { v.ask(ctx, d); return nil, nil })
	}
}

func (v *View) ask(ctx context.Context, d Driver) {
	bounded, cancel := context.WithTimeout(ctx, answersTimeout)
	defer cancel()
	a := answers{endpoint: checkAddress(bounded, d.Spec), secrets: v.checkSecrets(bounded, d), rights: v.checkRights(bounded, d.Spec), at: time.Now()}
	if ctx.Err() == nil { // else nobody waits for them
		v.answers.Store(d.Name, a)
	}
}

// lastAnswers returns the last answers for a driver, zero if there are none yet.
func (v *View) lastAnswers(d Driver) answers {
	last, _ := v.answers.Load(d.Name)
	a, _ := last.(answers)
	return a
}

// checklist returns the checks of a driver as last known. It sends no request.
func (v *View) checklist(d Driver, now time.Time) []status.Check {
	last := v.lastAnswers(d)
	d.Known = d.Known && d.State != status.StateConnecting // else another endpoint has answered
	checks := []status.Check{checkEndpoint(d.Driver, last.endpoint), checkName(d), checkCapabilities(d), v.checkNodes(d),
		checkLease(d, now), last.secrets, last.rights, checkDecisions(d.Observed)}
	for i, name := range [...]string{"endpoint", "name", "capabilities", "node IDs", "lease", "secrets", "rights", "decisions"} {
		checks[i].Name = name
	}
	return slices.DeleteFunc(checks, func(c status.Check) bool { return c.Text == "" })
}

func passed(format string, args ...any) status.Check {
	return status.Check{OK: true, Text: fmt.Sprintf(format, args...)}
}

// open returns a check that is not passed. action may be empty.
func open(action, format string, args ...any) status.Check {
	c := status.Check{Text: fmt.Sprintf(format, args...), Actions: []string{action}}
	if action == "" {
		c.Actions = nil
	}
	return c
}

// checkEndpoint checks that the driver answers. address is the result of checkAddress.
func checkEndpoint(d status.Driver, address status.Check) status.Check {
	switch {
	case d.Fault.Verdict != "":
		return status.Check{Text: d.Endpoint + " answers, and " + d.Fault.Fact, Actions: d.Fault.Actions}
	case d.Up && address.Text != "":
		address.Text = d.Endpoint + " answers; " + address.Text
		return address
	case d.Up, d.State == status.StateNameMismatch:
		return passed("%s answers", d.Endpoint)
	}
	_, action := diagnosis.ParseRefusal(d.Reason, d.Endpoint, d.Source)
	return open(action, "%s is %s: %s", d.Endpoint, d.State, d.Reason)
}

// checkAddress checks the addresses of the endpoint's host, and for how long the certificates of both sides are valid. It
// returns the zero Check for a socket, and while the endpoint cannot be reached: then the connection says why.
func checkAddress(ctx context.Context, d registry.Driver) status.Check {
	host := d.Endpoint.Host()
	if host == "" || d.Endpoint.IsLocal() {
		return status.Check{}
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return status.Check{}
	}
	families := map[bool]int{}
	for _, a := range addresses {
		families[a.Unmap().Is4()]++
	}
	if max(families[true], families[false]) > 1 {
		return open("Use a Service with a cluster IP and sessionAffinity: ClientIP, so that the name leads to one replica at a time.",
			"%s has %d addresses: several replicas of the driver may answer", host, len(addresses))
	}
	if !d.TLS.Enabled() {
		return passed("without TLS, so that the Secrets of volumes are sent in plain text")
	}
	own, server, err := csiclient.Certificates(ctx, d)
	if err != nil {
		return status.Check{}
	}
	text := fmt.Sprintf("its certificate is valid until %s, the hub's until %s", server.NotAfter.UTC().Format(time.RFC3339), own.NotAfter.UTC().Format(time.RFC3339))
	if slices.ContainsFunc([]*x509.Certificate{server, own}, func(c *x509.Certificate) bool {
		return time.Until(c.NotAfter) < c.NotAfter.Sub(c.NotBefore)/6 // a sixth of its validity is left
	}) {
		return open("Renew the certificate that ends soon, and find out why nothing has renewed it.", "%s", text)
	}
	return passed("%s", text)
}

// checkName checks the name that the driver reports.
func checkName(d Driver) status.Check {
	switch {
	case d.State == status.StateNameMismatch:
		return open(fmt.Sprintf("Correct the name or the endpoint of the entry (%s).", d.Source), "%s", d.Reason)
	case !d.Known:
		return open("", "not known: the driver has not answered yet")
	}
	return passed("the driver reports the name %s, version %s", d.Name, d.Version) // CSI spec: the version is required
}

// checkCapabilities checks that the driver's capabilities fit its CSIDriver object and what an attacher has done.
func checkCapabilities(d Driver) status.Check {
	switch {
	case !d.Known:
		return open("", "not known: there was no connection yet")
	case d.Decider.NoAttach:
		return open("Remove the driver from the configuration, or correct attachRequired if its volumes need an attach.",
			"attachRequired of the CSIDriver is false: there is nothing to attach or to hand over")
	case d.RecordedCalls > 0:
		return open("Set the endpoint to the socket of the driver's controller.",
			"no %s, but %d VolumeAttachments have the finalizer or the node ID that an attacher writes before it calls the driver: %s may be the socket of the node plugin",
			status.Lacks(d.Capabilities), d.RecordedCalls, d.Endpoint)
	case !d.Decider.Capabilities.PublishUnpublish:
		return passed("no %s: VolumeAttachments are marked attached without a call", status.Lacks(d.Capabilities))
	}
	return passed("%s", strings.Join(d.Capabilities, ", "))
}

// checkNodes checks that the driver has registered a node ID on each node that needs volumes of it.
func (v *View) checkNodes(d Driver) status.Check {
	nodes, missing := map[string]bool{}, []string{}
	for _, va := range v.Cluster.AttachmentsOfDriver(d.Name) {
		if node := va.Spec.NodeName; !nodes[node] && va.DeletionTimestamp == nil {
			nodes[node] = true
			if id, _ := attach.NodeID(v.Cluster.CSINode(node), d.Name); id == "" {
				missing = append(missing, node)
			}
		}
	}
	switch {
	case len(missing) > 0:
		verdict := map[bool]diagnosis.Verdict{true: diagnosis.NodeWithoutDriver, false: diagnosis.NodeWithoutCSI}[v.Cluster.CSINode(missing[0]) != nil]
		return open(diagnosis.Cause{Verdict: verdict}.Action(missing[0], "", ""),
			"%d of %d nodes with volumes have no node ID of the driver in their CSINode, for example %s", len(missing), len(nodes), missing[0])
	case len(nodes) == 0 && len(v.Cluster.NodesOfDriver(d.Name)) == 0:
		return open("Check the name of the driver, and that its node plugin (a DaemonSet) runs.", "no CSINode has a node ID of the driver")
	}
	return passed("all %d nodes with volumes have one", len(nodes))
}

// checkSecrets checks that the hub can read the Secrets that the driver's volumes name. It keeps no value of them.
func (v *View) checkSecrets(ctx context.Context, d Driver) status.Check {
	all := v.Cluster.SecretsOfDriver(d.Name)
	refs := all[:min(len(all), mostSecrets)]
	failed, example, action := 0, "", "" // of the first that cannot be read
	for _, ref := range refs {
		if _, err := d.ReadSecret(ctx, ref); err != nil {
			if failed++; failed > 1 {
				continue
			}
			example, action = fmt.Sprintf("%s/%s: %v", ref.Namespace, ref.Name, err), "Check the API server."
			if !attach.NotReady(err) {
				text := fmt.Sprintf("read secret %s/%s for the call: %v", ref.Namespace, ref.Name, err)
				cause, _ := diagnosis.Parse(text, "")
				action = cause.Action("", "", text)
			}
		}
	}
	rest := ""
	if len(all) > len(refs) {
		rest = fmt.Sprintf(", %d were not tried", len(all)-len(refs))
	}
	switch {
	case failed > 0:
		return open(action, "%d of %d cannot be read%s, for example %s", failed, len(all), rest, example)
	case len(all) == 0:
		return passed("no volume of the driver names one")
	}
	return passed("%d of %d can be read%s", len(refs), len(all), rest)
}

// checkRights checks the rights of this process in the cluster. It returns the zero Check if nobody can tell.
func (v *View) checkRights(ctx context.Context, d registry.Driver) status.Check {
	if v.Rights == nil {
		return status.Check{}
	}
	var l lease.Name
	if v.Leases != nil {
		l = v.LeaseOf(d)
	}
	missing, err := v.Rights(ctx, l)
	switch {
	case err != nil:
		return open("Check the API server.", "not known: %v", err)
	case len(missing) == 0:
		return passed("the hub has all that it needs, apart from Secrets")
	}
	text, required := "missing: "+missing[0].String(), !missing[0].Optional
	for _, r := range missing[1:] {
		text, required = text+", "+r.String(), required || !r.Optional
	}
	if !required {
		return passed("%s; volumes are attached and detached without them", text)
	}
	return open("Grant them: "+missing[0].Manifest+".", "%s", text)
}

// checkLease checks who holds the lease. Of a driver that is active, the hub must hold it. Else another attacher must, and
// to renew it: the hub takes a lease that has expired at once, and an attacher without leader election goes on beside it.
func checkLease(d Driver, now time.Time) status.Check {
	l, active := d.Lease, d.Mode == string(registry.ModeActive)
	lease := l.Namespace + "/" + l.Name
	switch {
	case l.Name == "" && active:
		return passed("this hub runs without leader election: no other attacher may work for the driver")
	case l.Name == "":
		return open("End the other attacher before the driver is made active.", "this hub runs without leader election")
	case l.Mine:
		return passed("%s is held by this replica", lease)
	case active && d.isServedElsewhere:
		return passed("%s is held by %s, another replica of the hub", lease, l.Holder)
	case active && l.Holder == "" && !d.Up:
		return open("Make the driver reachable: the first replica that can call it takes the lease.", "nobody holds %s", lease)
	case active:
		found := status.DiagnoseLease(l, d.Reason, nil, now)
		return status.Check{Text: lease + ": " + found.Line("Lease", now), Actions: found.Actions}
	case d.Mode == string(registry.ModePaused) && l.Holder == "": // on purpose: it is often the step before a csi-attacher starts
		return passed("nobody holds %s: the driver is paused", lease)
	case l.LastHolder != "":
		howLong := ""
		if !l.Renewed.IsZero() {
			howLong = " for " + diagnosis.Length(now.Sub(l.Renewed))
		}
		return open(status.NobodyAttaches, "%s was not renewed%s, last by %s: nobody holds it; made active, the hub takes it at once", lease, howLong, l.LastHolder)
	case l.Holder == "":
		return open(status.NobodyAttaches, "nobody holds %s", lease)
	case !l.Renews:
		return open("", "not known yet: the hub has not seen %s renew %s", l.Holder, lease)
	}
	return passed("%s is held by %s: made active, the hub waits for it", lease, l.Holder)
}

// checkDecisions checks that the hub would have done the same as the other attacher. It returns the zero Check for nil.
func checkDecisions(seen *status.Observed) status.Check {
	if seen == nil {
		return status.Check{}
	}
	text := fmt.Sprintf("%d agreed, %d would have failed, %d differ, %d not known yet", seen.Agreed, seen.WouldHaveFailed, seen.Differs, seen.Pending)
	switch {
	case seen.WouldHaveFailed+seen.Differs > 0:
		return open("Look at the disagreements on the page of the driver.", "%s", text)
	case seen.Agreed == 0:
		return open("Wait until a volume is attached or detached.", "there was nothing to compare yet")
	}
	return passed("%s", text)
}
