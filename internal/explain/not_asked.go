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
	case w.noAttach():
		w.ok("CSIDriver %s says attachRequired: false, so that there is nothing to attach", w.Driver)
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
		w.stop(Finding{diagnosis.NodeMissing, "Node " + w.NodeName, "there is none, and the Pod is bound to it", "delete the Pod so that it is made anew on another node"})
		return
	case w.CSIDriver.Err() != nil:
		return // it may be that nothing is to be attached
	case node != nil && node.Annotations[controllerAttaches] != "true":
		w.stop(Finding{diagnosis.KubeletAttaches, "Node " + w.NodeName, "it does not have the annotation " + controllerAttaches + ": kube-controller-manager attaches nothing for it", "set enableControllerAttachDetach in the configuration of its kubelet, or wait for the kubelet to register"})
		return
	}
	w.stop(Finding{diagnosis.NotAskedYet, w.volumeRef(), fmt.Sprintf("there is no VolumeAttachment of it for node %s: the attach-detach controller has not asked to attach it", w.NodeName),
		"if this lasts, look at the Pod's Events (FailedAttachVolume) and at the log of kube-controller-manager; no attacher can do anything before"})
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
		w.stop(Finding{diagnosis.VolumeBeingDeleted, object, fmt.Sprintf("it is being deleted since %s, held by %s", w.at(pv.DeletionTimestamp.Time), heldBy(pv.Finalizers)), "look at who owns that finalizer: kubernetes.io/pv-protection goes with the claim, external-attacher/... with the last VolumeAttachment"})
	case fault != nil:
		w.stop(*fault)
	case w.Users.Value() == nil:
		return // Pods may use it: unknown says why they could not be read
	case len(users) > 0:
		var names []string
		for _, p := range users {
			names = append(names, p.Name)
		}
		w.stop(Finding{diagnosis.PodNotScheduled, ref(Pod, users[0].Namespace, strings.Join(names, ", ")), "it uses the volume and is on no node yet", "this is the scheduler's to solve: look at the Pod's Events"})
	default:
		w.stop(Finding{diagnosis.NotWanted, object, "there is no VolumeAttachment of it, and no Pod known that uses it", "nothing: it is attached when a Pod that uses it gets a node"})
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
			w.stop(Finding{diagnosis.WaitingForDetach, ref(VolumeAttachment, "", other.Name), w.leavesFact(&other),
				fmt.Sprintf("find out why it is not detached: csi-attach-hub explain %s", other.Name)})
			return true
		case other.DeletionTimestamp == nil && other.Status.Attached:
			w.stop(Finding{diagnosis.AttachedElsewhere, ref(VolumeAttachment, "", other.Name), fmt.Sprintf("the volume can be on one node only and is attached to node %s (Multi-Attach): %s", other.Spec.NodeName, w.usersOn(other.Spec.NodeName)),
				fmt.Sprintf("delete the Pod that uses it on %s; it is detached when that node's kubelet has unmounted it, or, if the node is dead, when it is tainted node.kubernetes.io/out-of-service", other.Spec.NodeName)})
			return true
		}
	}
	return false
}

func (w *walk) leavesFact(other *storagev1.VolumeAttachment) string {
	fact := fmt.Sprintf("the volume can be on one node only and is being detached from node %s since %s", other.Spec.NodeName, w.at(other.DeletionTimestamp.Time))
	if e := other.Status.DetachError; e != nil {
		fact += "; the last try failed: " + e.Message
	}
	return fact
}

// mayBeAttached reports whether the volume is not known to be detached.
func mayBeAttached(va *storagev1.VolumeAttachment) bool {
	return va.Status.Attached || len(va.Finalizers) > 0
}

// usersOn says which Pods use the volume on a node.
func (w *walk) usersOn(node string) string {
	if w.Users.Value() == nil {
		return "which Pods use it there is not known"
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
		return "no Pod is known that uses it there"
	}
	return "used there by Pod " + strings.Join(names, ", ")
}

// heldBy lists finalizers.
func heldBy(finalizers []string) string {
	if len(finalizers) == 0 {
		return "no finalizer"
	}
	return strings.Join(finalizers, ", ")
}
