package observe

import (
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// keptDisagreements is the number of latest disagreements that the status shows.
const keptDisagreements = 100

// agreements are the agreements that count, in the terms of metrics and status.
var agreements = map[attach.Agreement]status.Agreement{
	attach.Agreed:          status.Agreed,
	attach.WouldHaveFailed: status.WouldHaveFailed,
	attach.Differs:         status.Differs,
}

// findings are the results of comparing the VolumeAttachments of one driver.
type findings struct {
	driver  string
	metrics *status.DriverMetrics

	mu            sync.Mutex             // guards the fields below
	attachments   map[string]*attachment // by name
	counts        map[status.Agreement]int
	disagreements []status.Disagreement // the latest first
}

// attachment is a VolumeAttachment that exists and has been compared.
type attachment struct {
	// The inputs with its last state that had the driver's finalizer, by which its detach is judged.
	inputs attach.Inputs
	judged bool // its attach was counted
}

func newFindings(driver string, m *status.DriverMetrics) *findings {
	return &findings{driver: driver, metrics: m, attachments: map[string]*attachment{}, counts: map[status.Agreement]int{}}
}

// add adds a finding. Only the first final finding about an attach counts: node and volume may change later.
func (f *findings) add(inputs attach.Inputs, finding attach.Observation) {
	va := inputs.VolumeAttachment
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.attachments[va.Name]
	if a == nil {
		a = &attachment{}
		f.attachments[va.Name] = a
	}
	if before := a.inputs.VolumeAttachment; before == nil || !f.hasFinalizer(before) || f.hasFinalizer(va) {
		a.inputs = inputs
	}
	if a.judged || finding.Operation == attach.Detaching && !finding.Final() {
		return
	}
	if finding.Final() {
		a.judged = true
		f.count(va, finding)
	}
}

// hasFinalizer reports whether a VolumeAttachment has the driver's finalizer.
func (f *findings) hasFinalizer(va *storagev1.VolumeAttachment) bool {
	return attach.HasFinalizer(va.Finalizers, attach.Finalizer(f.driver))
}

// endUnless judges the detach of the VolumeAttachment that had a name, unless it still exists as va. va is nil
// if no VolumeAttachment has the name now.
func (f *findings) endUnless(va *storagev1.VolumeAttachment, name string, decider attach.Driver) {
	f.mu.Lock()
	a := f.attachments[name]
	if a != nil && va != nil && va.UID == a.inputs.VolumeAttachment.UID {
		a = nil
	}
	if a != nil {
		delete(f.attachments, name)
	}
	f.mu.Unlock()
	if a == nil || a.inputs.VolumeAttachment.DeletionTimestamp == nil {
		return
	}
	if finding := decider.ObserveDetach(a.inputs); finding.Final() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.count(a.inputs.VolumeAttachment, finding)
	}
}

// count counts a final finding. The caller holds mu.
func (f *findings) count(va *storagev1.VolumeAttachment, finding attach.Observation) {
	agreement := agreements[finding.Agreement]
	f.counts[agreement]++
	f.metrics.Observed(agreement)
	if agreement == status.Agreed {
		return
	}
	f.disagreements = append([]status.Disagreement{{VolumeAttachment: va.Name, Node: va.Spec.NodeName, Agreement: agreement,
		Reason: finding.Operation.String() + ": " + finding.Reason, Since: time.Now()}},
		f.disagreements[:min(len(f.disagreements), keptDisagreements-1)]...)
}

// summary returns the counts and the latest disagreements.
func (f *findings) summary() status.Observed {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := status.Observed{
		Agreed:          f.counts[status.Agreed],
		WouldHaveFailed: f.counts[status.WouldHaveFailed],
		Differs:         f.counts[status.Differs],
		Disagreements:   append([]status.Disagreement(nil), f.disagreements...),
	}
	for _, a := range f.attachments {
		if !a.judged {
			s.Pending++
		}
	}
	return s
}
