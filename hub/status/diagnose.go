package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// DiagnosisInput is what is known about a VolumeAttachment at one moment.
type DiagnosisInput struct {
	Attachment Attachment
	Driver     *Driver    // of the VolumeAttachment; nil if it is not served, or if no hub was asked
	Replicas   []string   // of the hub: their identities
	Conflicts  []Conflict // of the configuration
	Now        time.Time
}

// Diagnose says where a VolumeAttachment stops and what to do, the cause first. What keeps the
// driver from being worked for at all comes before what is the matter with this one.
func Diagnose(in DiagnosisInput) []diagnosis.Diagnosis {
	a := in.Attachment
	switch {
	case a.Fault.Verdict != "":
		return []diagnosis.Diagnosis{a.Fault}
	case a.State == Idle && in.Driver != nil && in.Driver.NoAttach:
		return []diagnosis.Diagnosis{a.says(diagnosis.AttachNotRequired, "not attached: its CSIDriver has attachRequired: false", "Run csi-attach-hub explain driver/"+a.Driver+" for what to do.")}
	case a.State == Idle:
		return []diagnosis.Diagnosis{a.says(diagnosis.NothingToDo, "no operation is due, and it is not marked attached")}
	case in.Driver == nil || a.State == Unserved:
		return DiagnoseUnserved(a.Driver, in.Conflicts)
	case a.State == Attached && a.Operation == "":
		found := []diagnosis.Diagnosis{a.says(diagnosis.IsAttached, "the volume is attached to node "+a.Node,
			"If a Pod still waits, look at its Events and at the kubelet of the node: the driver's node plugin must now stage and mount the volume.")}
		if in.Driver.RecordedCalls > 0 {
			found = append(found, DiagnoseCapability(*in.Driver)) // it may be marked attached without being so
		}
		return found
	}
	d, work := DiagnoseDriver(*in.Driver, in.Replicas, in.Now), DiagnoseWork(in)
	switch {
	case d.Verdict == diagnosis.DriverObserved && in.Driver.Lease.Holder != "" && a.LastError != "":
		return append(work, d) // the result of the other attacher's tries counts more
	case d.Verdict == diagnosis.LeaseHeld && slices.Contains(in.Replicas, in.Driver.Lease.Holder) && len(work) > 0:
		if a.LastError != "" { // in the status of its object
			work[0].Fact += " (served by " + in.Driver.Lease.Holder + ")"
		}
		return work
	case d.Verdict != "":
		return []diagnosis.Diagnosis{d}
	case len(work) > 0:
		return work
	}
	return []diagnosis.Diagnosis{in.inFlight()} // it is about to begin
}

// DiagnoseWork says what came of the tries of a VolumeAttachment so far and what the next one
// waits for, the cause first. Driver may be nil. It is empty if nothing is known.
func DiagnoseWork(in DiagnosisInput) []diagnosis.Diagnosis {
	if in.Driver == nil {
		in.Driver = new(Driver)
	}
	a := in.Attachment
	detachFirst := a.Waiting.Kind == WaitForDetach || a.Waiting.Kind == WaitForDanglingDetach
	full, hangs, elsewhere := a.Waiting.Kind == WaitForCapacity, in.hangs(), in.publishedElsewhere()
	runs := a.State == Attaching || a.State == Detaching || !a.Call.Since.IsZero()
	var found []diagnosis.Diagnosis
	add := func(holds bool, what func() diagnosis.Diagnosis) {
		if holds {
			found = append(found, what())
		}
	}
	add(detachFirst, in.queued)
	add(hangs, in.inFlight) // the last error is of an earlier call
	found = append(found, elsewhere...)
	add(full, in.nodeFull)
	add(a.LastError != "" && elsewhere == nil && !(full && a.Cause().Code == "ResourceExhausted"), in.failed)
	add(runs && !hangs && !full, in.inFlight)
	add(a.Waiting.Kind != "" && !runs && !full && !detachFirst, in.queued)
	add(a.Tries > 0 && !full, in.retrying)
	add(a.State == Stuck && !a.Since.IsZero(), in.stuck)
	return found
}

// says returns a diagnosis of the VolumeAttachment itself.
func (a Attachment) says(v diagnosis.Verdict, fact string, actions ...string) diagnosis.Diagnosis {
	return diagnosis.New(v, "VolumeAttachment "+a.Name, fact, "", actions...)
}

// hangs reports whether a call for it is unanswered for longer than is usual.
func (in DiagnosisInput) hangs() bool {
	return passed(in.Attachment.Call.Since, in.Now) >= in.Driver.Settings.slow()
}

// stuck says that nothing has come of it for long.
func (in DiagnosisInput) stuck() diagnosis.Diagnosis {
	return in.Attachment.says(diagnosis.Stuck, "stuck: no success", either(in.Driver.Mode == modeObserve, "Fix the problem above: the other attacher retries, the hub only observes.", "Fix the problem above. Retries continue, unless the driver is paused.")).From(in.Attachment.Since)
}

// failed says what the last error means.
func (in DiagnosisInput) failed() diagnosis.Diagnosis {
	a, timeout := in.Attachment, in.Driver.Settings.Timeout.Duration
	for _, f := range in.Driver.Failures { // the latest first
		if a.LastErrorTime.IsZero() && f.VolumeAttachment == a.Name {
			a.LastErrorTime = f.Time
		}
	}
	cause := a.Cause()
	_, text := diagnosis.Parse(a.LastError, cause.Code)
	action := either(a.Operation == Detach, cause.DetachAction, cause.Action)
	d := a.says(diagnosis.LastError, "the last try failed", action(a.Node, a.PersistentVolume, text))
	d.Last, d.Detail = a.LastErrorTime, text
	switch cause.Verdict {
	case diagnosis.BackendError:
		d.Verdict, d.Object = cause.Verdict, "driver "+a.Driver
		d.Fact = fmt.Sprintf("answered %s to %s", cause.Code, a.method())
		// A driver passes on the error of its own calls, too. It has answered if so many tries would have taken longer.
		answered := a.Tries > 1 && passed(a.Since, in.Now) < time.Duration(a.Tries-1)*timeout
		if cause.Code == "DeadlineExceeded" && !answered && slices.ContainsFunc(ownDeadline, func(words string) bool { return strings.Contains(text, words) }) {
			limit := either(timeout > 0, "within "+registry.FormatDuration(timeout), "in time")
			d.Fact, d.Detail = fmt.Sprintf("did not answer %s %s", a.method(), limit), cause.Code
		}
	case diagnosis.CannotConnect:
		d.Verdict, d.Object, d.Fact = cause.Verdict, "driver "+a.Driver, "could not be called"
	default:
		d.Verdict = cmp.Or(cause.Verdict, d.Verdict)
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

// retrying says how often it was tried and when it is tried again.
func (in DiagnosisInput) retrying() diagnosis.Diagnosis {
	a := in.Attachment
	d := a.says(diagnosis.Retrying, plural(a.Tries, "try has failed", "tries in a row have failed"),
		"Wait: the hub keeps retrying. It retries at once when the node's CSINode, the PersistentVolume, its secret or the driver's connection changes.")
	if wait := a.NextTry.Sub(in.Now).Round(time.Second); wait > 0 {
		d.Detail = "the next one is in " + diagnosis.Length(wait)
	}
	return d
}

// inFlight says that a worker has it.
func (in DiagnosisInput) inFlight() diagnosis.Diagnosis {
	a, settings := in.Attachment, in.Driver.Settings
	d := a.says(diagnosis.CallInFlight, a.method()+" is running", "Wait for the answer of the driver."+settings.cancels())
	switch c := a.Call; {
	case in.hangs():
		d = a.says(diagnosis.CallUnanswered, c.Method+" unanswered", lookAtDriver+settings.cancels())
	case !c.Since.IsZero():
		d.Fact = c.Method + " has been running"
	}
	if d.Since = a.Call.Since; a.Operation == Drift {
		d.Detail = "attaching the volume again, because the storage system does not list it on the node"
	}
	return d
}

const lookAtDriver = "Look at the log of the driver's controller and at the storage system."

// cancels says until when a call may take, as a further sentence.
func (s Settings) cancels() string {
	if s.Timeout.Duration == 0 {
		return ""
	}
	return fmt.Sprintf(" The hub cancels the call after %s (timeout) and tries again.", registry.FormatDuration(s.Timeout.Duration))
}

// queued says that something else goes first.
func (in DiagnosisInput) queued() diagnosis.Diagnosis {
	a := in.Attachment
	d := a.says(diagnosis.Queued, a.Waiting.String())
	switch a.Waiting.Kind {
	case WaitForDetach:
		d.Verdict = diagnosis.WaitingForDetach
		d.Actions = []string{
			fmt.Sprintf("Run csi-attach-hub explain %s to see why the volume is not detached yet. It can be on one node only.", a.Waiting.VolumeAttachment),
			"Check that no Pod with the volume is left on that node: a detach begins when the kubelet has unmounted the volume. If the node is dead, taint it node.kubernetes.io/out-of-service.",
		}
	case WaitForDanglingDetach:
		d.Verdict = diagnosis.WaitingForDetach
		d.Actions = []string{fmt.Sprintf("Run csi-attach-hub explain driver/%s, or look at the driver's page, for the last error of this detach.", a.Driver)}
	case WaitForWorker:
		d.Actions = []string{fmt.Sprintf("Check how long the driver's calls take: all workers for this operation are busy (%s). Raise workers if the driver can take more calls at once.", in.Driver.inFlight())}
	case WaitForNode:
		d.Actions = []string{fmt.Sprintf("Wait for the other calls for this node, or raise maxPerNode: it is %d.", in.Driver.Settings.MaxPerNode)}
	case WaitForVolume:
		d.Actions = []string{"Wait: the hub makes one call for a volume at a time. parallelMultiNode of the driver allows one per node, for volumes with a MULTI_NODE access mode."}
	}
	return d
}
