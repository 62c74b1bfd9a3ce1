package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// explain follows the volume from the Pod to the last error. before are the volumes of the question that were explained
// already.
func (v *volume) explain(before []*volume) {
	v.report = VolumeReport{Title: v.title(), Result: Waiting, Path: []string{}}
	if v.podStage() && v.claimStage() && v.volumeStage() {
		v.attachmentStage()
	}
	if v.report.Stop != nil {
		v.cure(v.report.Stop)
	}
	v.danglingNotes(before)
	switch {
	case v.stopsAt(diagnosis.NotWanted):
		v.report.Result = NotNeeded
	case v.report.Result == Waiting && v.report.Stop == nil:
		v.report.Result = NotKnown
	}
	if v.report.Result == Waiting && v.va.value != nil && !v.stopsAt(diagnosis.AttachRequiredWrong) { // it may have been attached since
		v.report.Since = v.attempted().Since.UTC()
	}
}

func (v *volume) title() string {
	var parts []string
	if v.mount != "" {
		parts = append(parts, "volume "+v.mount)
	}
	if v.claimName != "" && v.question.Kind != PersistentVolumeClaim {
		parts = append(parts, "claim "+v.namespace+"/"+v.claimName)
	}
	if v.volumeName != "" && v.question.Kind != PersistentVolume {
		parts = append(parts, ref(PersistentVolume, "", v.volumeName))
	}
	text := cmp.Or(strings.Join(parts, ", "), "its volume")
	if v.driver != "" {
		text += " of driver " + v.driver
	}
	if here := slices.DeleteFunc(slices.Clone(items(v.others)), func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName != v.nodeName }); len(here) > 1 {
		text += " by " + v.attachmentRef()
	}
	if v.nodeName != "" {
		text += " on node " + v.nodeName
	}
	return text
}

// asked returns when the attach or the detach was required.
func asked(va *storagev1.VolumeAttachment) time.Time {
	if va.DeletionTimestamp != nil {
		return va.DeletionTimestamp.Time
	}
	return va.CreationTimestamp.Time
}

// ok adds a step that is as it should be.
func (v *volume) ok(format string, args ...any) {
	v.report.Path = append(v.report.Path, fmt.Sprintf(format, args...))
}

// stop adds a problem. The first problem is the stop, further ones are notes.
func (v *volume) stop(f diagnosis.Diagnosis) {
	if v.report.Stop == nil {
		v.report.Stop = &f
	} else {
		v.note(f)
	}
}

func (v *volume) note(f diagnosis.Diagnosis) { v.report.Notes = append(v.report.Notes, f) }

// later keeps a finding that becomes the stop only if nothing nearer to the volume does.
func (v *volume) later(f diagnosis.Diagnosis) { v.lastResorts = append(v.lastResorts, f) }

// stopsAt reports whether the walk has stopped at one of some verdicts.
func (v *volume) stopsAt(verdicts ...diagnosis.Verdict) bool {
	return v.report.Stop != nil && slices.Contains(verdicts, v.report.Stop.Verdict)
}

// podStage checks that the Pod has a node and the volume needs an attach.
func (v *volume) podStage() bool {
	if v.pod == nil {
		return true
	}
	if v.pod.Spec.NodeName != "" {
		v.ok("%s is bound to node %s", v.question, v.pod.Spec.NodeName)
		return true
	}
	fact := "not scheduled to a node yet"
	for _, c := range v.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			fact = diagnosis.Because(fact, c.Message)
		}
	}
	v.stop(found(diagnosis.PodNotScheduled, v.question.String(), fact, "Look at the Pod's Events: a volume is attached only after the scheduler has found a node."))
	return true // its claims may be why
}

// askedByClaim reports whether the volume was found by its claim: the question is about a Pod or the
// claim. Without the claim the walk then ends.
func (v *volume) askedByClaim() bool {
	return v.question.Kind == Pod || v.question.Kind == PersistentVolumeClaim
}

// claimStage checks that the claim exists and is bound to the volume.
func (v *volume) claimStage() bool {
	if v.claimName == "" {
		return true
	}
	object, claim := ref(PersistentVolumeClaim, v.namespace, v.claimName), v.claim.value
	switch {
	case v.claim.missing && v.askedByClaim():
		return v.claimStop(found(diagnosis.ClaimMissing, object, "does not exist", "Create the claim: the Pod waits for it."))
	case v.claim.missing:
		return v.claimStop(found(diagnosis.ClaimMissing, object, "does not exist, and the PersistentVolume names it in its claimRef",
			"If Pods wait for the claim, create it, and remove the uid from the claimRef of the PersistentVolume: the claim then gets this volume. "+
				"If not, do nothing: persistentVolumeReclaimPolicy says what happens to the volume."))
	case claim == nil:
		return v.volumeName != "" // unknown says why it was not read
	case v.class.missing:
		return v.claimStop(found(diagnosis.ClaimNotBound, object, "not bound to a PersistentVolume: StorageClass "+*claim.Spec.StorageClassName+" does not exist",
			"Create the StorageClass or a PersistentVolume of this class, or create the claim again with a class that exists: kubectl get storageclass lists them."))
	case claim.Status.Phase == corev1.ClaimLost && (v.pv.missing || v.va.value != nil && v.fault().Verdict != ""):
		return true // the PersistentVolume is gone or another one
	case claim.Status.Phase == corev1.ClaimLost && v.pv.value != nil && v.ofThisClaim():
		return v.claimStop(found(diagnosis.ClaimNotBound, object, "Lost, and "+ref(PersistentVolume, "", v.volumeName)+" is there and names it", "Wait some seconds: kube-controller-manager binds it again. If this lasts, look at its log."))
	case claim.Status.Phase == corev1.ClaimLost:
		return v.claimStop(found(diagnosis.ClaimNotBound, object, "Lost: the claimRef of "+ref(PersistentVolume, "", v.volumeName)+" names another claim, or this one before it was made again", "Create the claim again, or remove the uid from that claimRef: the claim then gets the volume."))
	case claim.Status.Phase != corev1.ClaimBound:
		return v.claimStop(found(diagnosis.ClaimNotBound, object, cmp.Or(string(claim.Status.Phase), "new")+", not bound to a PersistentVolume", "Look at the claim's Events, its StorageClass and the driver's provisioner: a volume is attached only after its claim is bound. With WaitForFirstConsumer it is bound when a Pod has a node."))
	}
	v.ok("%s is bound to %s", object, ref(PersistentVolume, "", v.volumeName))
	return true
}

// claimStop stops at the claim if it led to the volume or may be why nobody needs it. Else it notes the finding: attachers
// do not look at claims.
func (v *volume) claimStop(f diagnosis.Diagnosis) (goOn bool) {
	asked, pv := v.va.value != nil || v.noAttach(), v.pv.value
	attached := v.va.value != nil && v.isAttached()
	if attached {
		f.Fact += "; its volume is still attached"
	}
	if v.askedByClaim() || !asked && (pv == nil || pv.DeletionTimestamp == nil) {
		v.stop(f)
		return attached
	}
	if v.va.value != nil {
		v.note(f)
	}
	return true
}

// volumeStage checks that the PersistentVolume exists and is of a CSI driver that attaches.
func (v *volume) volumeStage() bool {
	if v.volumeName == "" {
		return v.va.value != nil || v.migrated != nil // inline
	}
	object, pv := v.volumeRef(), v.pv.value
	switch {
	case pv == nil && v.va.value != nil:
		return true // it names the driver; attaching and detaching say what is missing
	case v.pv.missing:
		v.stop(found(diagnosis.VolumeMissing, object, "does not exist, and the claim is bound to it", "Restore the PersistentVolume, or create the claim again."))
		return false
	case pv == nil:
		return false // unknown says why it was not read
	case v.driver == "":
		v.stop(found(diagnosis.VolumeNotCSI, object, "neither a CSI volume nor migrated to CSI", diagnosis.Cause{Verdict: diagnosis.VolumeNotCSI}.Action("", "", "")))
		return false
	}
	v.ok("%s is a volume of CSI driver %s, handle %s", object, v.driver, cmp.Or(attach.VolumeOf(pv).Handle, "unknown"))
	return true
}

// volumeRef names the volume for people.
func (v *volume) volumeRef() string {
	if v.volumeName == "" {
		return "volume " + v.mount
	}
	return ref(PersistentVolume, "", v.volumeName)
}

// attachmentStage checks that a VolumeAttachment needs the volume on the node, and that it is attached.
func (v *volume) attachmentStage() {
	switch va := v.va.value; {
	case va == nil:
		v.notAsked()
	case va.DeletionTimestamp != nil:
		v.ok("%s was deleted %s: the volume must be detached from node %s", v.attachmentRef(), diagnosis.Ago(va.DeletionTimestamp.Time, v.now), va.Spec.NodeName)
		v.operation(va)
	case v.isAttached():
		v.attached(va)
	case v.noAttach() && !v.detaching():
		v.notRequired()
	default:
		v.ok("%s needs the volume on node %s since %s", v.attachmentRef(), va.Spec.NodeName, diagnosis.At(va.CreationTimestamp.Time, v.now))
		v.operation(va)
	}
}

// noAttach reports whether the CSIDriver says attachRequired: false.
func (v *volume) noAttach() bool {
	d := v.csiDriver.value
	return d != nil && !ptr.Deref(d.Spec.AttachRequired, true)
}

func (v *volume) attachmentRef() string { return ref(VolumeAttachment, "", v.va.value.Name) }

// isAttached reports whether the volume is attached, and no operation is due.
func (v *volume) isAttached() bool {
	va := v.va.value
	return va.DeletionTimestamp == nil && va.Status.Attached && (v.seen == nil || v.seen.Operation == "")
}

// attached notes the risks of an attached volume.
func (v *volume) attached(va *storagev1.VolumeAttachment) {
	v.ok("%s says that the volume is attached to node %s", v.attachmentRef(), va.Spec.NodeName)
	if f := v.fault(); f.Verdict != "" {
		v.stop(f)
	}
	if v.report.Result = Attached; v.report.Stop != nil {
		v.report.Result = Attention
	}
	v.driverNotes()
	v.nodeNotes()
}

// detaching reports whether the volume must be detached: its VolumeAttachment was deleted, or attachRequired became false.
func (v *volume) detaching() bool {
	return v.va.value.DeletionTimestamp != nil || v.seen != nil && v.seen.Operation == status.Detach
}

// fault says what is wrong with the objects of the VolumeAttachment: what the hub has found, else that the PersistentVolume is
// gone or being deleted. A detach needs the PersistentVolume only if the VolumeAttachment does not have its handle.
func (v *volume) fault() diagnosis.Diagnosis {
	switch pv := v.pv.value; {
	case v.seen != nil && v.seen.Fault.Verdict != "":
		return v.finding(v.seen.Fault)
	case v.pv.missing && (!v.detaching() || v.handle() == ""):
		return found(diagnosis.VolumeMissing, v.volumeRef(), "does not exist", v.action(diagnosis.VolumeMissing))
	case pv != nil && pv.DeletionTimestamp != nil && !v.detaching():
		return found(diagnosis.VolumeBeingDeleted, v.volumeRef(), "being deleted", v.action(diagnosis.VolumeBeingDeleted)).From(pv.DeletionTimestamp.Time)
	}
	return diagnosis.Diagnosis{}
}

// nodeNotes notes the problems of the node, unless they are the stop.
func (v *volume) nodeNotes() {
	object, c := "Node "+v.nodeName, ready(v.node.value)
	switch {
	case v.node.missing && !v.stopsAt(diagnosis.NodeMissing):
		v.note(found(diagnosis.NodeMissing, object, "does not exist", "Delete the Pods that are bound to the node if it is gone: kube-controller-manager then detaches their volumes."))
	case c != nil && c.Status != corev1.ConditionTrue:
		v.note(diagnosis.New(diagnosis.NodeNotReady, object, "not ready", cmp.Or(c.Message, c.Reason), "Look at its kubelet.", "If the node is dead, taint it node.kubernetes.io/out-of-service, so that its volumes are detached.").From(c.LastTransitionTime.Time))
	}
}

// danglingNotes notes where the volume is attached without a VolumeAttachment, once for a volume on several nodes, and not
// if the walk has stopped there. A PersistentVolume may have been recreated with another handle: its name counts only if the
// handle is not known.
func (v *volume) danglingNotes(before []*volume) {
	same := func(other *volume) bool {
		return v.driver == other.driver && v.volumeName == other.volumeName && v.handle() == other.handle()
	}
	if v.served == nil || v.stopsAt(diagnosis.Dangling) || slices.ContainsFunc(before, same) {
		return
	}
	for _, u := range v.served.Dangling {
		if handle := v.handle(); handle != "" && u.VolumeHandle == handle || handle == "" && v.volumeName != "" && u.PersistentVolume == v.volumeName {
			v.note(v.finding(u.Diagnose(v.driver)))
		}
	}
}
