package explain

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const (
	// longWait is the time without success after which a VolumeAttachment counts as stuck if the hub does not say:
	// the hub's default of stuckAfter.
	longWait = 15 * time.Minute
	// slow is the time without success after which it counts as in trouble if the hub does not say.
	slow = time.Minute
)

// attaching explains a volume that waits for its attach. What keeps the hub from calling the driver
// comes first, then what the objects lack, then the driver's errors.
func (v *volume) attaching(va *storagev1.VolumeAttachment) {
	v.service()
	object, pv := v.volumeRef(), v.pv.value
	switch {
	case va.Spec.Source.PersistentVolumeName == nil:
	case v.pv.missing:
		v.stop(found(diagnosis.VolumeMissing, object, "does not exist, and the VolumeAttachment names it", v.action(diagnosis.VolumeMissing)))
	case pv != nil && pv.DeletionTimestamp != nil:
		v.stop(diagnosis.New(diagnosis.VolumeBeingDeleted, object, "being deleted", heldBy(pv.Finalizers), v.action(diagnosis.VolumeBeingDeleted)).From(pv.DeletionTimestamp.Time))
	}
	v.withoutDriver()
	v.elsewhere()
	v.withoutSecret()
	v.tries(va.Status.AttachError)
	v.nodeNotes()
}

// detaching explains a VolumeAttachment that was deleted and still exists.
func (v *volume) detaching(va *storagev1.VolumeAttachment) {
	own := attach.Finalizer(va.Spec.Attacher)
	foreign := slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool { return f == own })
	kept := found(diagnosis.FinalizerOfAnother, v.attachmentRef(), heldBy(foreign)+", which no attacher sets", "Ask the owner of that finalizer to remove it: the object stays until then.")
	if len(foreign) == 0 {
		kept.Fact, kept.Actions = "has no finalizer left and is about to be removed", []string{"Wait some seconds."}
	}
	if len(foreign) == len(va.Finalizers) {
		v.stop(kept)
		return
	}
	v.service()
	if va.Annotations[attach.AnnotationVolumeHandle] == "" && va.Spec.Source.PersistentVolumeName != nil && v.pv.missing {
		v.stop(found(diagnosis.VolumeMissing, v.volumeRef(), "does not exist, and the VolumeAttachment does not record the volume handle: no attacher knows what to detach", "Restore the PersistentVolume with the same name and handle. Remove the finalizer only if the storage system shows the volume as detached."))
	}
	if va.Annotations[attach.AnnotationNodeID] == "" {
		v.withoutDriver()
	}
	v.withoutSecret()
	v.tries(va.Status.DetachError)
	v.stopUnlessStopped(found(diagnosis.BeingDetached, v.attachmentRef(), "ControllerUnpublishVolume has not succeeded yet", "Wait some seconds. If this lasts, look at the log of the driver's controller."))
	if len(foreign) > 0 {
		v.note(kept)
	}
}

// heldBy lists finalizers.
func heldBy(finalizers []string) string {
	if len(finalizers) == 0 {
		return "held by no finalizer"
	}
	return "held by finalizer " + strings.Join(finalizers, ", ")
}

// action returns what to do about a verdict, as the status page says it.
func (v *volume) action(verdict diagnosis.Verdict) string {
	return diagnosis.Cause{Verdict: verdict}.Action(v.nodeName, v.volumeName, "")
}

// withoutDriver stops if the driver has not registered a node ID on the node.
func (v *volume) withoutDriver() {
	object := "CSINode " + v.nodeName
	switch {
	case v.csiNode.missing && v.node.missing:
		v.stop(found(diagnosis.NodeMissing, "Node "+v.nodeName, "does not exist, and has no CSINode: the node is gone", "Delete the Pod, and the VolumeAttachment if it stays: nothing can be attached to this node."))
	case v.csiNode.missing:
		v.stop(found(diagnosis.NodeWithoutCSI, object, "does not exist: the node's kubelet has registered no CSI driver yet", v.action(diagnosis.NodeWithoutCSI)))
	case v.nodeID() != "":
		v.ok("%s has driver %s, node ID %s", object, v.driver, v.nodeID())
	case v.csiNode.value != nil:
		v.stop(found(diagnosis.NodeWithoutDriver, object, "driver "+v.driver+" is not registered on the node", v.action(diagnosis.NodeWithoutDriver)))
	}
}

// withoutSecret stops if the secret of the calls does not exist.
func (v *volume) withoutSecret() {
	object := "Secret " + v.secret.Namespace + "/" + v.secret.Name
	switch {
	case !v.secretExists.missing:
	case v.va.value.DeletionTimestamp != nil:
		v.note(found(diagnosis.SecretMissing, object, "does not exist: the detach uses the content that the volume was attached with, and fails if the hub does not remember it", "Create the secret if the detach fails."))
	default:
		v.stop(found(diagnosis.SecretMissing, object, "does not exist, and the PersistentVolume names it in controllerPublishSecretRef", v.action(diagnosis.SecretMissing)))
	}
}

// tries says how the tries so far ended and what the next one waits for.
func (v *volume) tries(inStatus *storagev1.VolumeError) {
	known := v.attempted(inStatus)
	for _, d := range v.work(known) {
		switch f := v.finding(d); f.Verdict {
		case diagnosis.WaitingForDetach:
			if !v.stopsAt(diagnosis.WaitingForDetach) { // by the objects, which say more
				v.stop(f)
			}
		case diagnosis.Queued:
			v.later(f)
		case diagnosis.Retrying:
			f.Actions = nil
			v.note(f)
		case diagnosis.Stuck:
			v.note(f)
		case diagnosis.CallInFlight, diagnosis.CallUnanswered, diagnosis.NodeFull:
			v.stop(f)
		default:
			v.failed(f, known.Cause().Verdict)
		}
	}
	for _, f := range v.lastResorts {
		v.stop(f)
	}
	if v.va.value.DeletionTimestamp == nil {
		next := "Wait some seconds if it was asked for just now. Otherwise look at the log of the attacher that works for driver " + v.driver + ", and at the log of the driver's controller."
		v.stopUnlessStopped(found(diagnosis.NoReasonKnown, v.attachmentRef(), "no problem was found", next))
	}
}

func (v *volume) stopUnlessStopped(f diagnosis.Diagnosis) {
	if v.report.Stop == nil {
		v.stop(f)
	}
}

// work says what came of the tries of a VolumeAttachment.
func (v *volume) work(a status.Attachment) []diagnosis.Diagnosis {
	in := status.DiagnosisInput{Attachment: a, Now: v.now}
	if v.served != nil {
		in.Driver = &v.served.Driver
	}
	return status.DiagnoseWork(in)
}

// attempted returns the VolumeAttachment as the hub sees it, else as its object shows it. The hub's
// last error is newer than the error in the object's status.
func (v *volume) attempted(inStatus *storagev1.VolumeError) status.Attachment {
	va := v.va.value
	a := status.Attachment{State: status.Waiting}
	switch {
	case v.seen != nil:
		a = *v.seen
	case v.now.Sub(asked(va)) >= longWait:
		a.State = status.Stuck
	}
	a.Name, a.Driver, a.Node, a.PersistentVolume, a.Operation, a.Since = va.Name, v.driver, v.nodeName, v.volumeName, status.Attach, asked(va)
	if va.DeletionTimestamp != nil {
		a.Operation = status.Detach
	}
	if inStatus != nil && diagnosis.IsError(inStatus.Message) && (a.LastError == "" || a.LastError == inStatus.Message) {
		a.LastError, a.LastErrorTime = inStatus.Message, inStatus.Time.Time
		if inStatus.ErrorCode != nil {
			a.LastCause = diagnosis.Cause{Verdict: diagnosis.BackendError, Code: codes.Code(*inStatus.ErrorCode).String()}
		}
	}
	for _, pod := range items(v.pods) {
		if pod.Spec.NodeName == v.nodeName {
			a.Pods = append(a.Pods, pod.Namespace+"/"+pod.Name)
		}
	}
	return a
}

// sameCause are verdicts by which the objects and the last error say the same.
var sameCause = [][]diagnosis.Verdict{
	{diagnosis.NodeWithoutDriver, diagnosis.NodeWithoutCSI, diagnosis.NodeMissing},
	{diagnosis.VolumeMissing, diagnosis.VolumeBeingDeleted, diagnosis.VolumeNotCSI},
	{diagnosis.CannotConnect, diagnosis.SocketMissing, diagnosis.CertificateExpired, diagnosis.CertificateName, diagnosis.NameMismatch, diagnosis.DriverNotReady},
	{diagnosis.SecretMissing},
}

// failed says what the last error means, unless the walk has stopped at its cause already.
func (v *volume) failed(f diagnosis.Diagnosis, cause diagnosis.Verdict) {
	secret := v.secret.Namespace + "/" + v.secret.Name
	switch {
	case slices.ContainsFunc(sameCause, func(all []diagnosis.Verdict) bool { return slices.Contains(all, cause) && v.stopsAt(all...) }):
	case cause == diagnosis.SecretMissing && v.secretExists.value != nil:
		f.Detail, f.Actions = f.Detail+"; the secret exists now", []string{"Wait for the next try."}
		v.later(f)
	case f.Verdict == diagnosis.SecretForbidden && !strings.Contains(strings.Join(f.Actions, " "), "secret "+secret+","):
		f.Actions = []string{v.action(f.Verdict)} // whoever may write the status of a VolumeAttachment could name another secret
		fallthrough
	default:
		v.stop(f)
	}
}
