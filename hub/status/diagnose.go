package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// DiagnosisInput is what is known about a VolumeAttachment at one moment.
type DiagnosisInput struct {
	Attachment Attachment
	Driver     *Driver    // of the VolumeAttachment; nil if it is not served, or if no hub was asked
	Replicas   []Replica  // of the hub
	Conflicts  []Conflict // of the configuration
	Now        time.Time
}

// Diagnose says where a VolumeAttachment stops and what to do, the cause first. What keeps the
// driver from being worked for at all comes before what is the matter with this one.
func Diagnose(in DiagnosisInput) []diagnosis.Diagnosis {
	a := in.Attachment
	switch {
	case in.Driver == nil || a.State == Unclaimed:
		return DiagnoseUnserved(a.Driver, in.Conflicts)
	case a.State == Attached && a.Operation == "":
		found := []diagnosis.Diagnosis{{
			Verdict: diagnosis.IsAttached, Object: a.ref(), Fact: "the volume is attached to node " + a.Node,
			Actions: []string{"If a Pod still waits, look at its Events and at the kubelet of the node: the driver's node plugin now has to stage and mount the volume."},
		}}
		if d := DiagnoseCapability(*in.Driver); d.Verdict != "" {
			found = append(found, d) // it may be marked attached without being so
		}
		return found
	case a.State == Idle:
		return []diagnosis.Diagnosis{{Verdict: diagnosis.NothingToDo, Object: a.ref(), Fact: "no operation is due, and it is not marked attached"}}
	}
	d, work := DiagnoseDriver(*in.Driver, LeaseRecord{Lease: in.Driver.Lease}, in.Replicas, in.Now), DiagnoseWork(in)
	switch {
	case d.Verdict == diagnosis.DriverObserved && in.Driver.Lease.Holder != "" && a.LastError != "":
		return append(work, d) // the result of the other attacher's tries counts more
	case d.Verdict != "":
		return []diagnosis.Diagnosis{d}
	case len(work) > 0:
		return work
	}
	return []diagnosis.Diagnosis{a.inFlight(in)} // it is about to begin
}

// DiagnoseWork says what came of the tries of a VolumeAttachment so far and what the next one
// waits for, the cause first. Driver may be nil. It is empty if nothing is known.
func DiagnoseWork(in DiagnosisInput) []diagnosis.Diagnosis {
	a := in.Attachment
	detachFirst := a.Waiting.Kind == WaitForDetach || a.Waiting.Kind == WaitForUnowned
	full := a.Waiting.Kind == WaitForCapacity
	runs := a.State == Attaching || a.State == Detaching
	hangs := in.hangs()
	var found []diagnosis.Diagnosis
	if detachFirst {
		found = append(found, a.queued(in.Driver))
	}
	if hangs { // the last error is of an earlier call
		found = append(found, a.inFlight(in))
	}
	if len(a.Elsewhere) > 0 {
		found = append(found, in.publishedElsewhere())
	}
	if full {
		found = append(found, in.nodeFull())
	}
	if a.LastError != "" && !in.explained() && !(full && a.Cause().Code == "ResourceExhausted") {
		found = append(found, in.failed())
	}
	switch {
	case hangs, full:
	case runs || !a.Call.Since.IsZero():
		found = append(found, a.inFlight(in))
	case a.WaitsFor != "" && !detachFirst:
		found = append(found, a.queued(in.Driver))
	}
	if a.Tries > 0 && !full {
		found = append(found, a.retrying(in.Now))
	}
	if a.State == Stuck && !a.Since.IsZero() {
		found = append(found, diagnosis.Diagnosis{
			Verdict: diagnosis.Stuck, Object: a.ref(), Fact: "stuck: no success", Since: a.Since,
			Actions: []string{in.stuckAction()},
		})
	}
	return found
}

// stuckAction says whether anybody retries.
func (in DiagnosisInput) stuckAction() string {
	if d := in.Driver; d != nil && (d.State == statePaused || d.Mode == modeObserve) {
		return "Fix the problem above: the hub does not retry while the driver is paused or observed."
	}
	return "Retries continue, but the problem above needs fixing."
}

func (a Attachment) ref() string { return "VolumeAttachment " + a.Name }

// hangs reports whether a call for it is unanswered for longer than is usual.
func (in DiagnosisInput) hangs() bool {
	var settings Settings
	if in.Driver != nil {
		settings = in.Driver.Settings
	}
	return passed(in.Attachment.Call.Since, in.Now) >= settings.slow()
}

// failed says what the last error means.
func (in DiagnosisInput) failed() diagnosis.Diagnosis {
	a := in.Attachment
	cause := a.Cause()
	_, text := diagnosis.Parse(a.LastError, cause.Code)
	d := diagnosis.Diagnosis{Verdict: diagnosis.LastError, Object: a.ref(), Fact: "the last try failed", Last: in.failedAt(), Detail: text, Actions: []string{cause.Action(a.Node, a.PersistentVolume, text)}}
	switch cause.Verdict {
	case diagnosis.BackendError:
		d.Verdict, d.Object = cause.Verdict, "driver "+a.Driver
		d.Fact = fmt.Sprintf("answered %s to %s", cause.Code, a.method())
		if cause.Code == "DeadlineExceeded" { // mostly the hub's own deadline has passed
			d.Fact = fmt.Sprintf("did not answer %s in time", a.method())
			if slices.ContainsFunc(ownDeadline, func(words string) bool { return strings.Contains(text, words) }) {
				d.Detail = cause.Code
			}
			if in.Driver != nil && in.Driver.Settings.Timeout > 0 {
				d.Fact = fmt.Sprintf("did not answer %s within %s", a.method(), in.Driver.Settings.Timeout)
			}
		}
	case diagnosis.CannotConnect:
		d.Verdict, d.Object, d.Fact = cause.Verdict, "driver "+a.Driver, "could not be called"
	case diagnosis.SecretMissing, diagnosis.SecretForbidden, diagnosis.SecretNotAllowed, diagnosis.WriteForbidden, diagnosis.WebhookFailed, diagnosis.AdmissionDenied, diagnosis.TooManyRequests:
		d.Verdict = cause.Verdict
	}
	return d
}

// ownDeadline are words of the errors that gRPC returns when the deadline of the hub has passed: it depends on
// a race which one that is.
var ownDeadline = []string{"context deadline exceeded", "RST_STREAM"}

// method returns the CSI call that the operation makes.
func (a Attachment) method() string {
	if a.Operation == Detach {
		return "ControllerUnpublishVolume"
	}
	return "ControllerPublishVolume"
}

// Cause returns what the last error means. The status of a VolumeAttachment has only its text.
func (a Attachment) Cause() diagnosis.Cause {
	if a.LastCause != (diagnosis.Cause{}) {
		return a.LastCause
	}
	cause, _ := diagnosis.Parse(a.LastError, "")
	return cause
}

// failedAt returns when the last try failed, zero if it is not known.
func (in DiagnosisInput) failedAt() time.Time {
	if in.Driver != nil && in.Attachment.LastErrorTime.IsZero() {
		for _, f := range in.Driver.Failures { // the latest first
			if f.VolumeAttachment == in.Attachment.Name {
				return f.Time
			}
		}
	}
	return in.Attachment.LastErrorTime
}

// retrying says how often it was tried and when it is tried again.
func (a Attachment) retrying(now time.Time) diagnosis.Diagnosis {
	fact := count(a.Tries) + " tries in a row have failed"
	if a.Tries == 1 {
		fact = "one try has failed"
	}
	next := ""
	switch wait := a.NextTry.Sub(now).Round(time.Second); {
	case a.NextTry.IsZero():
	case wait > 0:
		next = "the next one is in " + diagnosis.Length(wait)
	default:
		next = "the next one is about to begin"
	}
	return diagnosis.Diagnosis{
		Verdict: diagnosis.Retrying, Object: a.ref(), Fact: fact, Detail: next,
		Actions: []string{"Wait: the hub keeps retrying. It retries at once when the node's CSINode, the PersistentVolume, its secret or the driver's connection changes."},
	}
}

// inFlight says that a worker has it.
func (a Attachment) inFlight(in DiagnosisInput) diagnosis.Diagnosis {
	d := diagnosis.Diagnosis{Verdict: diagnosis.CallInFlight, Object: a.ref(), Fact: a.method() + " is running", Detail: wanted(a)}
	if c := a.Call; !c.Since.IsZero() {
		d.Fact, d.Since = c.Method+" has been running", c.Since
		if in.hangs() {
			d.Verdict, d.Fact = diagnosis.CallUnanswered, c.Method+" unanswered"
		}
	}
	if a.Tries > 0 {
		d.Detail = diagnosis.Because(ordinal(a.Tries)+" retry", d.Detail)
	}
	var settings Settings
	if in.Driver != nil {
		settings = in.Driver.Settings
	}
	d.Actions = []string{"Wait for the answer of the driver."}
	if settings.Timeout > 0 {
		d.Actions = []string{fmt.Sprintf("Wait for the answer of the driver. The hub cancels the call after %s (timeout) and tries again.", settings.Timeout)}
	}
	if d.Verdict == diagnosis.CallUnanswered {
		d.Actions = []string{a.Call.action(settings)}
	}
	return d
}

// queued says that something else goes first.
func (a Attachment) queued(driver *Driver) diagnosis.Diagnosis {
	d := diagnosis.Diagnosis{Verdict: diagnosis.Queued, Object: a.ref(), Fact: a.Waits()}
	var known Driver
	if driver != nil {
		known = *driver
	}
	switch a.Waiting.Kind {
	case WaitForDetach:
		d.Verdict, d.Actions = diagnosis.WaitingForDetach, a.Waiting.detachFirst()
	case WaitForUnowned:
		d.Verdict = diagnosis.WaitingForDetach
		d.Actions = []string{fmt.Sprintf("Run csi-attach-hub status, or look at the driver's page, for the last error of this detach: the volume was left attached at node ID %s.", a.Waiting.NodeID)}
	case WaitForWorker:
		d.Actions = []string{fmt.Sprintf("Check how long the driver's calls take: all workers for this operation are busy (%d of %d calls in flight). Raise workers if the driver can take more calls at once.", known.Busy, known.Workers)}
	case WaitForNode:
		d.Actions = []string{fmt.Sprintf("Wait for the other calls for this node, or raise maxPerNode: it is %d.", known.Settings.MaxPerNode)}
	case WaitForVolume:
		d.Actions = []string{
			"Wait: the hub makes one call for a volume at a time. This one starts when the other one has ended.",
			fmt.Sprintf("Set parallelMultiNode to true for one call per node and volume, which only volumes with a MULTI_NODE access mode (ReadWriteMany, ReadOnlyMany) get. For this driver it is %t.", known.Settings.ParallelMultiNode),
		}
	}
	return d
}

// detachFirst says what to do while the volume is on another node.
func (w Wait) detachFirst() []string {
	from, look := "", "Look at the VolumeAttachment of the volume for that node"
	if w.Node != "" {
		from = " from node " + w.Node
	}
	if w.VolumeAttachment != "" {
		look = "Run csi-attach-hub explain " + w.VolumeAttachment
	}
	return []string{
		fmt.Sprintf("%s to see why the volume is not detached%s yet. It can be on one node only.", look, from),
		"Check that no Pod with the volume is left on that node: a detach begins when the kubelet has unmounted the volume. If the node is dead, taint it node.kubernetes.io/out-of-service.",
	}
}

// wanted says what the operation does.
func wanted(a Attachment) string {
	switch a.Operation {
	case Detach:
		return "detaching the volume from node " + a.Node
	case Drift:
		return "attaching the volume to node " + a.Node + " again, because the storage system does not list it there"
	}
	return "attaching the volume to node " + a.Node
}
