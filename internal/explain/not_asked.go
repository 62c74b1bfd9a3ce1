package explain

import (
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// controllerAttaches is the annotation by which a kubelet leaves attaching to
// kube-controller-manager.
const controllerAttaches = "volumes.kubernetes.io/controller-managed-attach-detach"

// notAsked looks for why there is no VolumeAttachment: none is needed, nobody wants the volume, or
// the attach-detach controller has not created it yet.
func (v *volume) notAsked() {
	node := v.node.value
	switch {
	case v.noAttach():
		v.notRequired()
	case !v.va.missing: // it could not be read: unknown says so
	case v.report.Stop != nil: // and so nobody needs it
	case v.nodeName == "":
		v.nobodyAsks()
	case v.elsewhere():
	case v.node.missing:
		v.stop(found(diagnosis.NodeMissing, "Node "+v.nodeName, "does not exist, and the Pod is bound to it", "Delete the Pod, so that it is created again on another node."))
	case v.csiDriver.err != nil: // it may be that nothing is to be attached
	case node != nil && node.Annotations[controllerAttaches] != "true":
		v.stop(found(diagnosis.KubeletAttaches, "Node "+v.nodeName, "has no annotation "+controllerAttaches+": kube-controller-manager attaches nothing to it", "Set enableControllerAttachDetach in the configuration of its kubelet, or wait for the kubelet to register."))
	default:
		v.stop(found(diagnosis.NotAskedYet, v.volumeRef(), fmt.Sprintf("has no VolumeAttachment for node %s: the attach-detach controller has not created it yet", v.nodeName),
			"Wait some seconds. If this lasts, look at the Pod's Events (FailedAttachVolume) and at the log of kube-controller-manager: attachers only act on VolumeAttachments."))
		v.nodeNotes()
		v.withoutDriver()
	}
}

// notRequired explains a volume whose CSIDriver says attachRequired: false. That is a problem if a Pod waits since the driver
// attaches.
func (v *volume) notRequired() {
	if v.served != nil && v.served.NoAttach && len(v.waitingPods()) > 0 {
		v.stop(v.finding(status.DiagnoseNoAttach(v.served.Driver)))
		return
	}
	v.ok("CSIDriver %s has attachRequired: false: nothing must be attached", v.driver)
	v.driverNotes()
	if v.report.Stop == nil {
		v.report.Result = NotNeeded
	}
}

// nobodyAsks explains a volume that no node needs.
func (v *volume) nobodyAsks() {
	pv, object, pods := v.pv.value, v.volumeRef(), items(v.pods)
	switch {
	case pv != nil && pv.DeletionTimestamp != nil:
		v.stop(diagnosis.New(diagnosis.VolumeBeingDeleted, object, "being deleted", heldBy(pv.Finalizers), "Find the owner of that finalizer: kubernetes.io/pv-protection is removed with the claim, external-attacher/... with the last VolumeAttachment.").From(pv.DeletionTimestamp.Time))
	case v.pods.value == nil: // Pods may use it: unknown says why they could not be read
	case len(pods) > 0:
		v.stop(found(diagnosis.PodNotScheduled, ref(Pod, pods[0].Namespace, pods[0].Name), "not scheduled to a node yet, and uses the volume", "Look at the Pod's Events: the scheduler says there why it finds no node."))
	default:
		v.stop(found(diagnosis.NotWanted, object, "has no VolumeAttachment, and no known Pod uses it", "Do nothing: it is attached when a Pod that uses it gets a node."))
	}
}
