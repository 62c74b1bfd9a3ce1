package hub

import (
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// observations returns what mode observe has found, nil in another mode: the counts, and
// the list of what has to be right before the driver is handed over.
func (m *manager) observations(s driverState) (*status.Observed, []status.Check) {
	o := s.observer
	if o == nil {
		return nil, nil
	}
	seen := o.summary()
	checks := []status.Check{
		s.checkEndpoint(),
		o.checkCapabilities(),
		o.checkNodes(),
		o.checkSecrets(),
		m.checkHolder(s),
		checkAgreement(seen),
	}
	return &seen, checks
}

// summary returns the counts and the latest disagreements.
func (o *observer) summary() status.Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := status.Observed{
		Agreed:          o.counts[attach.Agreed],
		WouldHaveFailed: o.counts[attach.WouldHaveFailed],
		Differs:         o.counts[attach.Differs],
		Disagreements:   append([]status.Disagreement(nil), o.odd...),
	}
	for _, e := range o.seen {
		if !e.judged {
			seen.Pending++
		}
	}
	return seen
}

// checkEndpoint: the driver answers, under its name.
func (s driverState) checkEndpoint() status.Check {
	if s.connection != Ready {
		return status.Check{Name: "endpoint", Text: fmt.Sprintf("%s is %s: %s", s.spec.Endpoint, s.connection, s.connectionReason)}
	}
	return status.Check{Name: "endpoint", OK: true, Text: fmt.Sprintf("%s answers, under the name %s", s.spec.Endpoint, s.spec.Name)}
}

// checkCapabilities: what the driver says that it can do fits its CSIDriver object.
func (o *observer) checkCapabilities() status.Check {
	c := status.Check{Name: "capabilities"}
	s := o.manager.session()
	switch required := o.cluster.AttachRequired(o.name); {
	case s == nil:
		c.Text = "not known: there was no connection yet"
	case !required:
		c.Text = "attachRequired of the CSIDriver is false: there is nothing to hand over"
	case !s.Info().Capabilities.PublishUnpublish:
		c.OK, c.Text = true, "no PUBLISH_UNPUBLISH_VOLUME: VolumeAttachments are marked attached without a call"
	default:
		c.OK, c.Text = true, "PUBLISH_UNPUBLISH_VOLUME"
	}
	return c
}

// checkNodes: the nodes on which there are volumes of the driver have a node ID.
func (o *observer) checkNodes() status.Check {
	nodes, without := map[string]bool{}, ""
	missing := 0
	for _, va := range o.cluster.AttachmentsOfDriver(o.name) {
		node := va.Spec.NodeName
		if nodes[node] {
			continue
		}
		nodes[node] = true
		if !o.registered(node) {
			missing, without = missing+1, node
		}
	}
	if missing > 0 {
		return status.Check{Name: "node IDs", Text: fmt.Sprintf("%d of %d nodes with volumes have no node ID of the driver in their CSINode, for example %s", missing, len(nodes), without)}
	}
	return status.Check{Name: "node IDs", OK: true, Text: fmt.Sprintf("all %d nodes with volumes have one", len(nodes))}
}

func (o *observer) registered(node string) bool {
	if object := o.cluster.CSINode(node); object != nil {
		for _, d := range object.Spec.Drivers {
			if d.Name == o.name && d.NodeID != "" {
				return true
			}
		}
	}
	return false
}

// checkSecrets: the secrets that go with the calls can be read.
func (o *observer) checkSecrets() status.Check {
	failed, all, example, err := o.secrets.failed()
	switch {
	case failed > 0:
		return status.Check{Name: "secrets", Text: fmt.Sprintf("%d of %d cannot be read, for example %s/%s: %v", failed, all, example.Namespace, example.Name, err)}
	case all == 0:
		return status.Check{Name: "secrets", OK: true, Text: "no volume seen so far needs one"}
	}
	return status.Check{Name: "secrets", OK: true, Text: fmt.Sprintf("all %d can be read", all)}
}

// checkHolder: another attacher holds the lease for which this one would compete. An
// attacher without leader election has to be ended before the driver is made active.
func (m *manager) checkHolder(s driverState) status.Check {
	if m.hub.options.Leases == nil {
		return status.Check{Name: "lease", Text: "this hub runs without leader election: end the other attacher before the driver is made active"}
	}
	name := m.hub.leaseOf(s.spec)
	holder, held := m.hub.options.Leases.Holder(name)
	if !held || holder.Identity == "" {
		return status.Check{Name: "lease", Text: fmt.Sprintf("nobody holds %s: an attacher that runs without leader election, or with its lease elsewhere, has to be ended before the driver is made active", name)}
	}
	return status.Check{Name: "lease", OK: true, Text: fmt.Sprintf("%s is held by %s: made active, the hub waits for it", name, holder.Identity)}
}

// checkAgreement: the hub would have come to the same.
func checkAgreement(seen status.Observed) status.Check {
	c := status.Check{Name: "decisions", Text: fmt.Sprintf("%d agreed, %d would have failed, %d differ, %d not known yet",
		seen.Agreed, seen.WouldHaveFailed, seen.Differs, seen.Pending)}
	c.OK = seen.Agreed > 0 && seen.WouldHaveFailed == 0 && seen.Differs == 0
	if seen.Agreed+seen.WouldHaveFailed+seen.Differs == 0 {
		c.Text = "there was nothing to compare yet"
	}
	return c
}
