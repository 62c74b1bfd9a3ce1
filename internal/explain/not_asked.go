package explain

import (
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// controllerAttaches is the annotation by which a kubelet leaves attaching to
// kube-controller-manager.
const controllerAttaches = "volumes.kubernetes.io/controller-managed-attach-detach"

// notAsked looks for why there is no VolumeAttachment: none is needed, nobody wants the volume, or
// the attach-detach controller has not created it yet.
func (w *walk) notAsked() {
	if fault := w.claimFault; fault != nil && len(items(w.Users)) > 0 {
		w.stop(*fault)
		return
	}
	switch {
	case w.noAttach() && w.attachRequiredWrong():
		w.stop(found(diagnosis.AttachRequiredWrong, "CSIDriver "+w.Driver, "has attachRequired: false, and the driver has "+publishCapability+": kube-controller-manager makes no VolumeAttachment, and a Pod with the volume does not start",
			"If the Pod's Events say that the mount fails since the volume is not attached, create the CSIDriver again with attachRequired: true, also in the manifest from which the driver was installed. The field cannot be changed."))
		return
	case w.noAttach():
		w.ok("CSIDriver %s has attachRequired: false: nothing has to be attached", w.Driver)
		w.done()
		return
	case !w.Attachment.Missing():
		return // it could not be read: unknown says so
	case w.report.Stop != nil:
		return // and so nobody asks for it
	case w.NodeName == "":
		w.nobodyAsks()
		return
	}
	if w.elsewhere() {
		return
	}
	node := w.Node.Value()
	switch {
	case w.Node.Missing():
		w.stop(found(diagnosis.NodeMissing, "Node "+w.NodeName, "does not exist, and the Pod is bound to it", "Delete the Pod, so that it is created again on another node."))
		return
	case w.CSIDriver.Err() != nil:
		return // it may be that nothing is to be attached
	case node != nil && node.Annotations[controllerAttaches] != "true":
		w.stop(found(diagnosis.KubeletAttaches, "Node "+w.NodeName, "has no annotation "+controllerAttaches+": kube-controller-manager attaches nothing to it", "Set enableControllerAttachDetach in the configuration of its kubelet, or wait for the kubelet to register."))
		return
	}
	w.stop(found(diagnosis.NotAskedYet, w.volumeRef(), fmt.Sprintf("has no VolumeAttachment for node %s: the attach-detach controller has not created it yet", w.NodeName),
		"Wait some seconds. If this lasts, look at the Pod's Events (FailedAttachVolume) and at the log of kube-controller-manager: attachers only act on VolumeAttachments."))
	w.nodeNotes()
	w.withoutDriver()
}

// volumeRef names the volume for people.
func (w *walk) volumeRef() string {
	if w.VolumeName == "" {
		return "volume " + w.Mount
	}
	return ref(PersistentVolume, "", w.VolumeName)
}

// nobodyAsks explains a volume that no node needs.
func (w *walk) nobodyAsks() {
	pv, object, users := w.PersistentVolume.Value(), w.volumeRef(), items(w.Users)
	switch fault := w.claimFault; {
	case pv != nil && pv.DeletionTimestamp != nil:
		w.stop(w.lasting(diagnosis.VolumeBeingDeleted, object, "being deleted", pv.DeletionTimestamp.Time, heldBy(pv.Finalizers), "Find the owner of that finalizer: kubernetes.io/pv-protection is removed with the claim, external-attacher/... with the last VolumeAttachment."))
	case fault != nil:
		w.stop(*fault)
	case w.Users.Value() == nil:
		return // Pods may use it: unknown says why they could not be read
	case len(users) > 0:
		var names []string
		for _, p := range users {
			names = append(names, p.Name)
		}
		w.stop(found(diagnosis.PodNotScheduled, ref(Pod, users[0].Namespace, strings.Join(names, ", ")), "not scheduled to a node yet, and uses the volume", "Look at the Pod's Events: the scheduler says there why it finds no node."))
	default:
		w.stop(found(diagnosis.NotWanted, object, "has no VolumeAttachment, and no known Pod uses it", "Do nothing: it is attached when a Pod that uses it gets a node."))
	}
}

// elsewhere stops if a single-node volume is on another node, and reports whether it did.
func (w *walk) elsewhere() bool {
	if !w.singleNode() {
		return false
	}
	for _, other := range items(w.Others) {
		switch {
		case other.DeletionTimestamp != nil && mayBeAttached(&other):
			w.stop(w.lasting(diagnosis.WaitingForDetach, ref(VolumeAttachment, "", other.Name), "being detached from node "+other.Spec.NodeName, other.DeletionTimestamp.Time, oneNodeOnly(&other),
				fmt.Sprintf("Run csi-attach-hub explain %s to see why the volume is not detached yet.", other.Name)))
			return true
		case other.DeletionTimestamp == nil && other.Status.Attached:
			w.stop(found(diagnosis.AttachedElsewhere, ref(VolumeAttachment, "", other.Name), fmt.Sprintf("attached to node %s, and the volume can be on one node only (Multi-Attach): %s", other.Spec.NodeName, w.usersOn(other.Spec.NodeName)),
				fmt.Sprintf("Delete the Pod that uses it on node %s: the volume is detached when the kubelet there has unmounted it. If the node is dead, taint it node.kubernetes.io/out-of-service.", other.Spec.NodeName)))
			return true
		}
	}
	return false
}

// oneNodeOnly says why a volume waits for the detach of another VolumeAttachment, and how its last try failed.
func oneNodeOnly(other *storagev1.VolumeAttachment) string {
	why := "the volume can be on one node only"
	if e := other.Status.DetachError; e != nil {
		why += "; the last try failed: " + e.Message
	}
	return why
}

// mayBeAttached reports whether the volume is not known to be detached.
func mayBeAttached(va *storagev1.VolumeAttachment) bool {
	return va.Status.Attached || len(va.Finalizers) > 0
}

// usersOn says which Pods use the volume on a node.
func (w *walk) usersOn(node string) string {
	if w.Users.Value() == nil {
		return "the Pods that use it there could not be read"
	}
	var names []string
	for _, p := range items(w.Users) {
		if p.Spec.NodeName != node {
			continue
		}
		name := p.Namespace + "/" + p.Name
		if p.DeletionTimestamp != nil {
			name += " (being deleted)"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return "no known Pod uses it there"
	}
	return "used there by Pod " + strings.Join(names, ", ")
}

// heldBy lists finalizers.
func heldBy(finalizers []string) string {
	if len(finalizers) == 0 {
		return "held by no finalizer"
	}
	return "held by finalizer " + strings.Join(finalizers, ", ")
}
