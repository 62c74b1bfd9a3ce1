package explain

import (
	"cmp"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// operation explains a volume that waits for its attach, or for its detach after the VolumeAttachment was deleted. What keeps the
// hub from calling the driver comes first, then what the objects lack, then the driver's errors.
func (v *volume) operation(va *storagev1.VolumeAttachment) {
	if f := v.fault(); f.Verdict != "" {
		v.stop(f)
		return
	}
	v.service()
	attaching := !v.detaching()
	if attaching || va.Annotations[attach.AnnotationNodeID] == "" {
		v.withoutDriver()
	}
	last := found(diagnosis.BeingDetached, v.attachmentRef(), "being detached, "+heldBy(va.Finalizers), "Wait some seconds. If this lasts, look at the log of the driver's controller.")
	if attaching {
		v.elsewhere()
		last = found(diagnosis.NoReasonKnown, v.attachmentRef(), "no problem was found",
			"Wait some seconds if it was asked for just now. Otherwise look at the log of the attacher that works for driver "+v.driver+", and at the log of the driver's controller.")
	}
	v.tries()
	for _, f := range v.lastResorts {
		v.stop(f)
	}
	if v.report.Stop == nil {
		v.stop(last)
	}
	v.nodeNotes()
}

// heldBy lists finalizers.
func heldBy(finalizers []string) string {
	return "finalizers: " + cmp.Or(strings.Join(finalizers, ", "), "none")
}

// action returns what to do about a verdict, as the status page says it.
func (v *volume) action(verdict diagnosis.Verdict) string {
	return diagnosis.Cause{Verdict: verdict}.Action(v.nodeName, v.volumeName, "")
}

// withoutDriver stops if the driver has not registered a node ID on the node.
func (v *volume) withoutDriver() {
	object := "CSINode " + v.nodeName
	switch id, _ := attach.NodeID(v.csiNode.value, v.driver); {
	case v.csiNode.missing && v.node.missing:
		v.stop(found(diagnosis.NodeMissing, "Node "+v.nodeName, "does not exist, and has no CSINode: the node is gone", "Delete the Pod, and the VolumeAttachment if it stays: nothing can be attached to this node."))
	case v.csiNode.missing:
		v.stop(found(diagnosis.NodeWithoutCSI, object, "does not exist: the node's kubelet has registered no CSI driver yet", v.action(diagnosis.NodeWithoutCSI)))
	case id != "":
		v.ok("%s has driver %s, node ID %s", object, v.driver, id)
	case v.csiNode.value != nil:
		v.stop(found(diagnosis.NodeWithoutDriver, object, "driver "+v.driver+" is not registered on the node", v.action(diagnosis.NodeWithoutDriver)))
	}
}

// tries says how the tries so far ended and what the next one waits for.
func (v *volume) tries() {
	in := status.DiagnosisInput{Attachment: v.attempted(), Now: v.now}
	if v.served != nil {
		in.Driver = &v.served.Driver
	}
	for _, d := range status.DiagnoseWork(in) {
		switch f := v.finding(d); f.Verdict {
		case diagnosis.WaitingForDetach:
			if !v.stopsAt(diagnosis.WaitingForDetach) { // by the objects, which say more
				v.stop(f)
			}
		case diagnosis.Queued, diagnosis.CallInFlight:
			if v.report.Stop == nil && v.lastResorts == nil { // else that says more
				v.later(f)
			}
		case diagnosis.Retrying:
			f.Actions = nil
			v.note(f)
		case diagnosis.Stuck:
			v.note(f)
		default:
			v.failed(f)
		}
	}
}

// attempted returns the VolumeAttachment as the hub sees it, else as its object shows it.
func (v *volume) attempted() status.Attachment {
	va := v.va.value
	a, last := status.Attachment{Name: va.Name, State: status.Waiting, Operation: status.Attach, Since: asked(va)}, va.Status.AttachError
	if va.DeletionTimestamp != nil {
		a.Operation, last = status.Detach, va.Status.DetachError
	}
	switch {
	case v.seen != nil:
		a = *v.seen
	case last != nil && diagnosis.IsError(last.Message):
		a.LastError, a.LastErrorTime, a.LastCause = last.Message, last.Time.Time, attach.CauseOfStatus(last)
	}
	a.Driver, a.Node, a.PersistentVolume = v.driver, v.nodeName, v.volumeName
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
	{diagnosis.CapabilityMissing, diagnosis.LastError},
	{diagnosis.CannotConnect, diagnosis.SocketMissing, diagnosis.CertificateExpired, diagnosis.CertificateName, diagnosis.NameMismatch, diagnosis.DriverNotReady},
}

// failed says what the last error means or what a try lacks, unless the walk has stopped at its cause already.
func (v *volume) failed(f diagnosis.Diagnosis) {
	if slices.ContainsFunc(sameCause, func(all []diagnosis.Verdict) bool { return slices.Contains(all, f.Verdict) && v.stopsAt(all...) }) {
		return
	}
	if f.Verdict == diagnosis.SecretForbidden && !strings.Contains(strings.Join(f.Actions, " "), "secret "+v.secret()+",") {
		f.Actions = []string{v.action(f.Verdict)} // anyone who may write the status of a VolumeAttachment could name another secret
	}
	v.stop(f)
}
