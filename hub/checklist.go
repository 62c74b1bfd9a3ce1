package hub

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
	// lastPart: a certificate with less than this part of its validity left was not renewed in time.
	lastPart = 6
)

// RightsFunc returns the rights that this process lacks to serve a driver with a lease. The zero Name stands for no lease.
type RightsFunc func(context.Context, lease.Name) (missing []rights.Right, err error)

// checkAnswers are the checks of a driver that need requests to the API server, to DNS or to the endpoint.
type checkAnswers struct {
	at                        time.Time
	endpoint, secrets, rights status.Check // of the endpoint: what is known beside the connection
}

// Checklist returns the conditions for serving a driver, nil if it is not served. It waits for the API server, for at most
// some seconds.
func (h *Hub) Checklist(ctx context.Context, driver string) []status.Check {
	h.mu.Lock()
	m := h.managers[driver]
	h.mu.Unlock()
	if m == nil {
		return nil
	}
	m.askChecks(ctx)
	replicas := h.replicas()
	return m.checklist(m.view(replicas, time.Now()), replicas)
}

// askChecks makes the requests of the checklist, unless the last answers are new.
func (m *manager) askChecks(ctx context.Context) {
	m.asking.Lock()
	defer m.asking.Unlock()
	if a := m.answers.Load(); a != nil && time.Since(a.at) < answersTTL {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answersTimeout)
	defer cancel()
	spec := m.get().spec
	answers := &checkAnswers{endpoint: checkAddress(ctx, spec), secrets: m.checkSecrets(ctx), rights: m.checkRights(ctx, spec)}
	if ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded {
		return // nobody waits for them
	}
	answers.at = time.Now()
	m.answers.Store(answers)
}

// checklist returns the checks of a driver as last known. It sends no request.
func (m *manager) checklist(d status.Driver, replicas map[string]bool) []status.Check {
	var a checkAnswers
	if known := m.answers.Load(); known != nil {
		a = *known
	}
	var checks []status.Check
	add := func(name string, c status.Check) {
		if c.Text != "" {
			c.Name = name
			checks = append(checks, c)
		}
	}
	add("endpoint", checkEndpoint(d, a.endpoint))
	add("name", checkName(d))
	add("capabilities", m.checkCapabilities(d))
	add("node IDs", m.checkNodes())
	add("lease", checkLease(d, replicas, time.Now()))
	add("secrets", a.secrets)
	add("rights", a.rights)
	if d.Observed != nil {
		add("decisions", checkDecisions(*d.Observed))
	}
	return checks
}

func passedCheck(format string, args ...any) status.Check {
	return status.Check{OK: true, Text: fmt.Sprintf(format, args...)}
}

func openCheck(action, format string, args ...any) status.Check {
	return status.Check{Text: fmt.Sprintf(format, args...), Action: action}
}

// checkEndpoint checks that the driver answers. address is the result of checkAddress.
func checkEndpoint(d status.Driver, address status.Check) status.Check {
	switch {
	case d.State == string(NameMismatch):
		return passedCheck("%s answers", d.Endpoint)
	case !d.Up:
		_, action := diagnosis.ParseRefusal(d.Reason, d.Endpoint)
		return openCheck(action, "%s is %s: %s", d.Endpoint, d.State, d.Reason)
	case address.Text != "":
		address.Text = d.Endpoint + " answers; " + address.Text
		return address
	}
	return passedCheck("%s answers", d.Endpoint)
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
	if families[true] > 1 || families[false] > 1 {
		return openCheck("Use a Service with a cluster IP and sessionAffinity: ClientIP, so that the name leads to one replica at a time.",
			"%s has %d addresses: several replicas of the driver may answer", host, len(addresses))
	}
	if !d.TLS.Enabled() {
		return passedCheck("without TLS, so that the Secrets of volumes are sent in plain text")
	}
	own, server, err := csiclient.Certificates(ctx, d)
	if err != nil {
		return status.Check{}
	}
	text := fmt.Sprintf("its certificate is valid until %s, the hub's until %s", server.NotAfter.UTC().Format(time.RFC3339), own.NotAfter.UTC().Format(time.RFC3339))
	now := time.Now()
	if ends := func(from, to time.Time) bool { return to.Sub(now) < to.Sub(from)/lastPart }; ends(server.NotBefore, server.NotAfter) || ends(own.NotBefore, own.NotAfter) {
		return openCheck("Renew the certificate that ends soon, and find out why nothing has renewed it.", "%s", text)
	}
	return passedCheck("%s", text)
}

// checkName checks the name that the driver reports.
func checkName(d status.Driver) status.Check {
	switch {
	case d.State == string(NameMismatch):
		return openCheck(fmt.Sprintf("Correct the name or the endpoint of the entry (%s).", d.Source), "%s", d.Reason)
	case !d.Up && d.Version == "" && d.Capabilities == nil:
		return openCheck("", "not known: the driver has not answered yet")
	case d.Version != "":
		return passedCheck("the driver reports the name %s, version %s", d.Name, d.Version)
	}
	return passedCheck("the driver reports the name %s", d.Name)
}

// checkCapabilities checks that the driver's capabilities fit its CSIDriver object and what an attacher has done.
func (m *manager) checkCapabilities(d status.Driver) status.Check {
	decider := m.decider()
	switch {
	case m.session() == nil:
		return openCheck("", "not known: there was no connection yet")
	case decider.NoAttach:
		return openCheck("Remove the driver from the configuration, or correct attachRequired if its volumes need an attach.",
			"attachRequired of the CSIDriver is false: there is nothing to attach or to hand over")
	case d.RecordedCalls > 0:
		return openCheck("Set the endpoint to the socket of the driver's controller.",
			"no %s, but %d VolumeAttachments have the finalizer or the node ID that an attacher writes before it calls the driver: %s may be the socket of the node plugin",
			csiclient.PublishUnpublish, d.RecordedCalls, d.Endpoint)
	case !decider.Capabilities.PublishUnpublish:
		return passedCheck("no %s: VolumeAttachments are marked attached without a call", csiclient.PublishUnpublish)
	}
	return passedCheck("%s", strings.Join(decider.Capabilities.Names(), ", "))
}

// checkNodes checks that the driver has registered a node ID on each node that needs volumes of it.
func (m *manager) checkNodes() status.Check {
	nodes, missing, example := map[string]bool{}, 0, ""
	for _, va := range m.cluster.AttachmentsOfDriver(m.name) {
		node := va.Spec.NodeName
		if nodes[node] || va.DeletionTimestamp != nil {
			continue
		}
		nodes[node] = true
		if id, _ := attach.NodeID(m.cluster.CSINode(node), m.name); id == "" {
			missing, example = missing+1, node
		}
	}
	switch {
	case missing > 0:
		return openCheck(diagnosis.Cause{Verdict: diagnosis.NodeWithoutDriver}.Action(example, "", ""),
			"%d of %d nodes with volumes have no node ID of the driver in their CSINode, for example %s", missing, len(nodes), example)
	case len(nodes) == 0 && len(m.cluster.NodesOfDriver(m.name)) == 0:
		return openCheck("Check the name of the driver, and that its node plugin (a DaemonSet) runs.", "no CSINode has a node ID of the driver")
	}
	return passedCheck("all %d nodes with volumes have one", len(nodes))
}

// checkSecrets checks that the hub can read the Secrets that the driver's volumes name. It keeps no value of them.
func (m *manager) checkSecrets(ctx context.Context) status.Check {
	refs := m.cluster.SecretsOfDriver(m.name)
	all := len(refs)
	refs = refs[:min(all, mostSecrets)]
	failed, example, cause := 0, corev1.SecretReference{}, error(nil) // the first that cannot be read, and why
	for _, ref := range refs {
		if _, err := m.readSecret(ctx, ref); err != nil {
			if failed++; failed == 1 {
				example, cause = ref, err
			}
		}
	}
	rest := ""
	if all > len(refs) {
		rest = fmt.Sprintf(", %d were not tried", all-len(refs))
	}
	switch {
	case failed > 0:
		return openCheck(secretAction(example, cause), "%d of %d cannot be read%s, for example %s/%s: %v",
			failed, all, rest, example.Namespace, example.Name, cause)
	case all == 0:
		return passedCheck("no volume of the driver names one")
	}
	return passedCheck("%d of %d can be read%s", len(refs), all, rest)
}

// secretAction says what to do about a Secret that cannot be read.
func secretAction(ref corev1.SecretReference, err error) string {
	verdict := diagnosis.SecretMissing
	if c := attach.CauseOf(err); c.Verdict == diagnosis.SecretNotAllowed {
		return c.Action("", "", "")
	}
	switch {
	case attach.NotReady(err):
		return "Check the API server."
	case apierrors.IsForbidden(err):
		verdict = diagnosis.SecretForbidden
	}
	return diagnosis.Cause{Verdict: verdict}.Action("", "", fmt.Sprintf("read secret %s/%s for the call: ", ref.Namespace, ref.Name))
}

// checkRights checks the rights of this process in the cluster. It returns the zero Check if nobody can tell.
func (m *manager) checkRights(ctx context.Context, d registry.Driver) status.Check {
	if m.hub.options.Rights == nil {
		return status.Check{}
	}
	var l lease.Name
	if m.hub.options.Leases != nil {
		l = m.hub.leaseOf(d)
	}
	missing, err := m.hub.options.Rights(ctx, l)
	switch {
	case err != nil:
		return openCheck("Check the API server.", "not known: %v", err)
	case len(missing) == 0:
		return passedCheck("the hub has all that it needs")
	}
	required, texts := false, make([]string, len(missing))
	for i, r := range missing {
		texts[i], required = r.String(), required || !r.Optional
	}
	text := "missing: " + strings.Join(texts, ", ")
	if !required {
		return passedCheck("%s; volumes are attached and detached without them", text)
	}
	return openCheck("Grant them: "+missing[0].Manifest+".", "%s", text)
}

// checkLease checks who holds the lease. Of a driver that is active, the hub has to hold it. Else another attacher has to, and
// to renew it: the hub takes a lease that has expired at once, and an attacher without leader election goes on beside it.
func checkLease(d status.Driver, replicas map[string]bool, now time.Time) status.Check {
	l, active := d.Lease, d.Mode == string(registry.ModeActive)
	lease := l.Namespace + "/" + l.Name
	without := "End another attacher that works without leader election, or with its lease elsewhere, before the driver is made active."
	switch {
	case l.Name == "" && active:
		return passedCheck("this hub runs without leader election: no other attacher may work for the driver")
	case l.Name == "":
		return openCheck("End the other attacher before the driver is made active.", "this hub runs without leader election")
	case l.Mine:
		return passedCheck("%s is held by this replica", lease)
	case active && replicas[l.Holder]:
		return passedCheck("%s is held by %s, another replica of the hub", lease, l.Holder)
	case active && l.Holder == "" && !d.Up:
		return openCheck("Make the driver reachable: the first replica that can call it takes the lease.", "nobody holds %s", lease)
	case active:
		found := status.DiagnoseLease(l, d.Reason, nil, now)
		return openCheck(strings.Join(found.Actions, " "), "%s: %s", lease, diagnosis.Because(found.Fact, found.Detail))
	case d.Mode == string(registry.ModePaused) && l.Holder == "": // on purpose: it is often the step before a csi-attacher starts
		return passedCheck("nobody holds %s: the driver is paused", lease)
	case l.LastHolder != "":
		lasting := ""
		if !l.Renewed.IsZero() {
			lasting = " for " + diagnosis.Length(now.Sub(l.Renewed))
		}
		return openCheck(without, "%s was not renewed%s, last by %s: nobody holds it; made active, the hub takes it at once", lease, lasting, l.LastHolder)
	case l.Holder == "":
		return openCheck(without, "nobody holds %s", lease)
	case !l.Renews:
		return openCheck("", "not known yet: the hub has not seen %s renew %s", l.Holder, lease)
	}
	return passedCheck("%s is held by %s: made active, the hub waits for it", lease, l.Holder)
}

// checkDecisions checks that the hub would have done the same as the other attacher.
func checkDecisions(seen status.Observed) status.Check {
	text := fmt.Sprintf("%d agreed, %d would have failed, %d differ, %d not known yet", seen.Agreed, seen.WouldHaveFailed, seen.Differs, seen.Pending)
	switch {
	case seen.Agreed+seen.WouldHaveFailed+seen.Differs == 0:
		return openCheck("Wait until a volume is attached or detached.", "there was nothing to compare yet")
	case seen.WouldHaveFailed+seen.Differs > 0:
		return openCheck("Look at the disagreements on the page of the driver.", "%s", text)
	}
	return passedCheck("%s", text)
}

// recordedCalls is attach.Driver.RecordedCalls, 0 before the first session.
func (m *manager) recordedCalls(s driverState) int {
	if s.session == nil {
		return 0
	}
	return m.decider().RecordedCalls(func() []*storagev1.VolumeAttachment { return m.cluster.AttachmentsOfDriver(m.name) })
}
