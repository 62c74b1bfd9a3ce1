package observe

import (
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Report returns the counts, and the checklist for handing the driver over. d has the driver's endpoint, state
// and lease.
func (o *Observer) Report(d status.Driver) (*status.Observed, []status.Check) {
	seen := o.findings.summary()
	return &seen, []status.Check{
		checkEndpoint(d),
		o.checkCapabilities(d.Endpoint),
		o.checkNodes(),
		o.checkSecrets(),
		checkLease(d.Lease, time.Now()),
		checkDecisions(seen),
	}
}

// checkEndpoint checks that the driver answers, under its name.
func checkEndpoint(d status.Driver) status.Check {
	c := status.Check{Name: "endpoint", OK: d.Up, Text: fmt.Sprintf("%s answers, under the name %s", d.Endpoint, d.Name)}
	if !d.Up {
		c.Text = fmt.Sprintf("%s is %s: %s", d.Endpoint, d.State, d.Reason)
	}
	return c
}

// checkCapabilities checks that the driver's capabilities fit its CSIDriver object and what the other attacher has done.
func (o *Observer) checkCapabilities(endpoint string) status.Check {
	c := status.Check{Name: "capabilities"}
	decider, known := o.options.Decider()
	calls := decider.RecordedCalls(func() []*storagev1.VolumeAttachment { return o.options.Cluster.AttachmentsOfDriver(o.options.Driver) })
	switch {
	case !known:
		c.Text = "not known: there was no connection yet"
	case decider.NoAttach:
		c.Text = "attachRequired of the CSIDriver is false: there is nothing to hand over"
	case calls > 0:
		c.Text = fmt.Sprintf("no PUBLISH_UNPUBLISH_VOLUME, but %d VolumeAttachments have the finalizer or the node ID that the other attacher writes before it calls the driver: "+
			"%s may be the socket of the node plugin. Set the endpoint to the socket of the driver's controller", calls, endpoint)
	case !decider.Capabilities.PublishUnpublish:
		c.OK, c.Text = true, "no PUBLISH_UNPUBLISH_VOLUME: VolumeAttachments are marked attached without a call"
	default:
		c.OK, c.Text = true, "PUBLISH_UNPUBLISH_VOLUME"
	}
	return c
}

// checkNodes checks that the driver has registered a node ID on each node that has volumes of it.
func (o *Observer) checkNodes() status.Check {
	nodes, missing, example := map[string]bool{}, 0, ""
	for _, va := range o.options.Cluster.AttachmentsOfDriver(o.options.Driver) {
		node := va.Spec.NodeName
		if nodes[node] {
			continue
		}
		nodes[node] = true
		if id, _ := attach.NodeID(o.options.Cluster.CSINode(node), o.options.Driver); id == "" {
			missing, example = missing+1, node
		}
	}
	if missing > 0 {
		return status.Check{Name: "node IDs", Text: fmt.Sprintf("%d of %d nodes with volumes have no node ID of the driver in their CSINode, for example %s", missing, len(nodes), example)}
	}
	return status.Check{Name: "node IDs", OK: true, Text: fmt.Sprintf("all %d nodes with volumes have one", len(nodes))}
}

// checkSecrets checks that the hub can read the Secrets that its calls would need.
func (o *Observer) checkSecrets() status.Check {
	failed, all, example, err := o.secrets.failed()
	switch {
	case failed > 0:
		return status.Check{Name: "secrets", Text: fmt.Sprintf("%d of %d cannot be read, for example %s/%s: %v", failed, all, example.Namespace, example.Name, err)}
	case all == 0:
		return status.Check{Name: "secrets", OK: true, Text: "no volume seen so far needs one"}
	}
	return status.Check{Name: "secrets", OK: true, Text: fmt.Sprintf("all %d can be read", all)}
}

// checkLease checks that another attacher holds the lease that the hub would compete for, and renews it: the hub
// takes a lease that has expired at once. An attacher without leader election has to be stopped before the driver is
// made active.
func checkLease(l status.Lease, now time.Time) status.Check {
	c := status.Check{Name: "lease"}
	name := l.Namespace + "/" + l.Name
	switch {
	case l.Name == "":
		c.Text = "this hub runs without leader election: end the other attacher before the driver is made active"
	case l.LastHolder != "":
		c.Text = fmt.Sprintf("%s was not renewed%s, last by %s: nobody holds it; made active, the hub takes it at once. A csi-attacher without leader election may still work",
			name, lasting(l.Renewed, now), l.LastHolder)
	case l.Holder == "":
		c.Text = fmt.Sprintf("nobody holds %s: an attacher that runs without leader election, or with its lease elsewhere, has to be ended before the driver is made active", name)
	case !l.Renews:
		c.Text = fmt.Sprintf("not known yet: the hub has not seen %s renew %s", l.Holder, name)
	default:
		c.OK, c.Text = true, fmt.Sprintf("%s is held by %s: made active, the hub waits for it", name, l.Holder)
	}
	return c
}

// lasting says for how long something has lasted, "" if that is not known.
func lasting(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return " for " + diagnosis.Length(now.Sub(since))
}

// checkDecisions checks that the hub would have done the same as the other attacher.
func checkDecisions(seen status.Observed) status.Check {
	c := status.Check{Name: "decisions", Text: fmt.Sprintf("%d agreed, %d would have failed, %d differ, %d not known yet",
		seen.Agreed, seen.WouldHaveFailed, seen.Differs, seen.Pending)}
	c.OK = seen.Agreed > 0 && seen.WouldHaveFailed == 0 && seen.Differs == 0
	if seen.Agreed+seen.WouldHaveFailed+seen.Differs == 0 {
		c.Text = "there was nothing to compare yet"
	}
	return c
}
