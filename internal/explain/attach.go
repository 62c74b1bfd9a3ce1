package explain

import (
	"cmp"
	"fmt"
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
			"Wait some seconds if it was requested just now. Otherwise look at the log of the attacher that works for driver "+v.driver+", and at the log of the driver's controller.")
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

// elsewhere stops if a single-node volume is on another node, and reports whether it did.
func (v *volume) elsewhere() bool {
	if !v.singleNode() {
		return false
	}
	for _, other := range items(v.others) {
		object, node := ref(VolumeAttachment, "", other.Name), other.Spec.NodeName
		switch {
		case node == v.nodeName: // its own, or of an earlier PersistentVolume of this name
		case other.DeletionTimestamp != nil && (other.Status.Attached || len(other.Finalizers) > 0): // it is not known to be detached
			why := "the volume can be on one node only"
			if e := other.Status.DetachError; e != nil {
				why += "; the last try failed: " + e.Message
			}
			v.stop(v.finding(diagnosis.New(diagnosis.WaitingForDetach, object, "being detached from node "+node, why,
				fmt.Sprintf("Run csi-attach-hub explain %s to see why the volume is not detached yet.", other.Name)).From(other.DeletionTimestamp.Time)))
			return true
		case other.DeletionTimestamp == nil && other.Status.Attached:
			action := fmt.Sprintf("Delete the Pod that uses it on node %s: the volume is detached when the kubelet there has unmounted it. If the node is dead, taint it node.kubernetes.io/out-of-service.", node)
			if v.otherNode.missing {
				action = fmt.Sprintf("Node %s does not exist: delete the Pod that uses it there with --force --grace-period=0, and the VolumeAttachment if it stays.", node)
			}
			v.stop(found(diagnosis.AttachedElsewhere, object, fmt.Sprintf("attached to node %s, and the volume can be on one node only (Multi-Attach): %s", node, v.podsOn(node)), action))
			return true
		}
	}
	return false
}

// podsOn says which Pods use the volume on a node.
func (v *volume) podsOn(node string) string {
	if v.pods.value == nil {
		return "the Pods that use it there could not be read"
	}
	var names []string
	for _, p := range items(v.pods) {
		if p.Spec.NodeName == node {
			name := p.Namespace + "/" + p.Name
			if p.DeletionTimestamp != nil {
				name += " (being deleted)"
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "no known Pod uses it there"
	}
	return "used there by Pod " + strings.Join(names, ", ")
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
