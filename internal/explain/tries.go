package explain

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// later keeps a finding that becomes the stop only if nothing nearer to the volume does.
func (w *walk) later(f Finding) { w.lastResorts = append(w.lastResorts, f) }

// tries says how the tries so far ended and what the next one waits for.
func (w *walk) tries(inStatus *storagev1.VolumeError) {
	known := status.DiagnosisInput{Attachment: w.attempted(inStatus), Now: w.Now}
	if w.Served != nil {
		known.Driver = &w.Served.Driver
	}
	var queued *Finding
	for _, d := range status.DiagnoseWork(known) {
		switch f := w.finding(d); f.Verdict {
		case diagnosis.WaitingForDetach:
			if !w.stopsAt(diagnosis.WaitingForDetach) { // by the objects, which say more
				w.stop(f)
			}
		case diagnosis.Queued:
			queued = &f
		case diagnosis.Retrying:
			f.Next = ""
			w.note(f)
		case diagnosis.Stuck:
			w.note(f)
		case diagnosis.CallInFlight, diagnosis.CallUnanswered, diagnosis.NodeFull:
			w.stop(f)
		default:
			if own := "secret " + w.Secret.Namespace + "/" + w.Secret.Name + ","; f.Verdict == diagnosis.SecretForbidden && !strings.Contains(f.Next, own) {
				f.Next = w.action(f.Verdict) // whoever may write the status of a VolumeAttachment could name another secret
			}
			w.failed(f, known.Attachment.Cause().Verdict)
		}
	}
	if queued != nil && w.report.Stop == nil && len(w.lastResorts) == 0 {
		w.stop(*queued)
	}
	for _, f := range w.lastResorts {
		w.stop(f)
	}
	if va := w.Attachment.Value(); w.report.Stop == nil && va.DeletionTimestamp == nil {
		next := "Wait some seconds. If this lasts, look at the log of the attacher that works for driver " + w.Driver + "."
		if known.Attachment.State == status.Stuck {
			next = "Look at the log of the attacher that works for driver " + w.Driver + ", and at the log of the driver's controller."
		}
		w.stop(found(diagnosis.NoReasonKnown, w.attachmentRef(), "no problem was found", next))
	}
}

// attempted returns the VolumeAttachment as the hub sees it, else as its object shows it. The hub's
// last error is newer than the error in the object's status.
func (w *walk) attempted(inStatus *storagev1.VolumeError) status.Attachment {
	va := w.Attachment.Value()
	since, operation := va.CreationTimestamp.Time, status.Attach
	if va.DeletionTimestamp != nil {
		since, operation = va.DeletionTimestamp.Time, status.Detach
	}
	a := status.Attachment{State: status.Waiting}
	if w.Seen.Value() != nil {
		a = *w.Seen.Value()
	} else if w.Now.Sub(since) >= longWait {
		a.State = status.Stuck
	}
	a.Name, a.Driver, a.Node, a.PersistentVolume, a.Operation, a.Since = va.Name, w.Driver, w.NodeName, w.VolumeName, operation, since
	if inStatus != nil && diagnosis.IsError(inStatus.Message) && (a.LastError == "" || a.LastError == inStatus.Message) {
		a.LastError, a.LastErrorTime = inStatus.Message, inStatus.Time.Time
		if inStatus.ErrorCode != nil {
			a.LastCause = diagnosis.Cause{Verdict: diagnosis.BackendError, Code: codes.Code(*inStatus.ErrorCode).String()}
		}
	}
	for _, pod := range items(w.Users) {
		if pod.Spec.NodeName == w.NodeName {
			a.Pods = append(a.Pods, pod.Namespace+"/"+pod.Name)
		}
	}
	return a
}

// failed says what the last error means, unless the walk has stopped at its cause already.
func (w *walk) failed(f Finding, cause diagnosis.Verdict) {
	switch {
	case w.repeats(cause):
	case cause == diagnosis.SecretMissing && w.Secret.Object.Value() != nil:
		f.Fact, f.Next = f.Fact+"; the secret exists now", "Wait for the next try."
		w.later(f)
	case f.Verdict == diagnosis.LastError && w.report.Stop != nil:
		f.Next = ""
		w.note(f)
	default:
		w.stop(f)
	}
}

// stopsAt reports whether the walk has stopped at one of some verdicts.
func (w *walk) stopsAt(verdicts ...diagnosis.Verdict) bool {
	return w.report.Stop != nil && slices.Contains(verdicts, w.report.Stop.Verdict)
}

// repeats reports whether the walk has stopped at the cause of an error already.
func (w *walk) repeats(cause diagnosis.Verdict) bool {
	switch cause {
	case diagnosis.NodeWithoutDriver, diagnosis.NodeWithoutCSI:
		return w.stopsAt(diagnosis.NodeWithoutDriver, diagnosis.NodeWithoutCSI, diagnosis.NodeMissing)
	case diagnosis.VolumeMissing, diagnosis.VolumeBeingDeleted, diagnosis.VolumeNotCSI:
		return w.stopsAt(diagnosis.VolumeMissing, diagnosis.VolumeBeingDeleted, diagnosis.VolumeNotCSI)
	}
	if cause == diagnosis.CannotConnect {
		return w.stopsAt(diagnosis.CannotConnect, diagnosis.SocketMissing, diagnosis.CertificateExpired, diagnosis.CertificateName, diagnosis.NameMismatch, diagnosis.DriverNotReady)
	}
	return cause == diagnosis.SecretMissing && w.stopsAt(diagnosis.SecretMissing)
}
