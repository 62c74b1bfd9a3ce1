package observe

import (
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// keptDisagreements is the number of latest disagreements that the status shows.
const keptDisagreements = 100

// attachment is a VolumeAttachment that exists and has been compared.
type attachment struct {
	inputs attach.Inputs // with its last state that had the driver's finalizer, by which its detach is judged
	judged bool          // its attach was counted
}

// add adds a finding. Only the first final finding about an attach counts: node and volume may change later.
func (o *Observer) add(inputs attach.Inputs, finding attach.Observation) {
	va, finalizer := inputs.VolumeAttachment, attach.Finalizer(o.options.Driver)
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.attachments[va.Name]
	if a == nil {
		a = &attachment{inputs: inputs}
		o.attachments[va.Name] = a
	}
	if attach.HasFinalizer(va.Finalizers, finalizer) || !attach.HasFinalizer(a.inputs.VolumeAttachment.Finalizers, finalizer) {
		a.inputs = inputs
	}
	if !a.judged && finding.Final() {
		a.judged = true
		o.count(va, finding)
	}
}

// endUnless judges the detach of the VolumeAttachment that had a name, unless it still exists as va. va is nil
// if no VolumeAttachment has the name now.
func (o *Observer) endUnless(va *storagev1.VolumeAttachment, name string, decider attach.Driver) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.attachments[name]
	if a == nil || va != nil && va.UID == a.inputs.VolumeAttachment.UID {
		return
	}
	delete(o.attachments, name)
	if a.inputs.VolumeAttachment.DeletionTimestamp == nil {
		return
	}
	if finding := decider.ObserveDetach(a.inputs); finding.Final() {
		o.count(a.inputs.VolumeAttachment, finding)
	}
}

// count counts a final finding. The caller holds mu.
func (o *Observer) count(va *storagev1.VolumeAttachment, finding attach.Observation) {
	agreement := status.Agreement(finding.Agreement)
	o.options.Metrics.Observed(agreement)
	switch agreement {
	case status.Agreed:
		o.seen.Agreed++
		return
	case status.WouldHaveFailed:
		o.seen.WouldHaveFailed++
	case status.Differs:
		o.seen.Differs++
	}
	o.seen.Disagreements = slices.Insert(o.seen.Disagreements, 0, status.Disagreement{VolumeAttachment: va.Name, Node: va.Spec.NodeName, Agreement: agreement,
		Reason: finding.Operation.String() + ": " + finding.Reason, Since: time.Now()})
	o.seen.Disagreements = o.seen.Disagreements[:min(len(o.seen.Disagreements), keptDisagreements)]
}

// Report returns the counts and the latest disagreements.
func (o *Observer) Report() *status.Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	seen.Disagreements = slices.Clone(seen.Disagreements)
	for _, a := range o.attachments {
		if !a.judged {
			seen.Pending++
		}
	}
	return &seen
}
