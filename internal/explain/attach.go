package explain

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// attaching explains a volume that waits for its attach. What keeps the hub from calling the driver
// comes first, then what the objects lack, then the driver's errors.
func (w *walk) attaching(va *storagev1.VolumeAttachment) {
	w.service()
	pv := w.PersistentVolume.Value()
	switch {
	case va.Spec.Source.PersistentVolumeName == nil:
	case w.PersistentVolume.Missing():
		w.stop(Finding{diagnosis.VolumeMissing, ref(PersistentVolume, "", w.VolumeName), "there is none, and the VolumeAttachment names it", w.action(diagnosis.VolumeMissing)})
	case pv != nil && pv.DeletionTimestamp != nil:
		w.stop(Finding{diagnosis.VolumeBeingDeleted, ref(PersistentVolume, "", pv.Name), fmt.Sprintf("it is being deleted since %s, held by %s", w.at(pv.DeletionTimestamp.Time), heldBy(pv.Finalizers)), w.action(diagnosis.VolumeBeingDeleted)})
	case pv != nil && w.Driver == "":
		w.stop(Finding{diagnosis.VolumeNotCSI, ref(PersistentVolume, "", pv.Name), "it is neither of a CSI driver nor migrated to one", "a VolumeAttachment of it cannot be carried out: delete it"})
	}
	w.withoutDriver()
	w.elsewhere()
	w.secret()
	w.tries(va.Status.AttachError)
	w.nodeNotes()
}

// detaching explains a VolumeAttachment that was deleted and still exists.
func (w *walk) detaching(va *storagev1.VolumeAttachment) {
	own := attach.Finalizer(va.Spec.Attacher)
	if !attach.HasFinalizer(va.Finalizers, own) {
		w.foreignFinalizers(va)
		return
	}
	w.service()
	if va.Annotations[attach.AnnotationVolumeHandle] == "" && va.Spec.Source.PersistentVolumeName != nil && w.PersistentVolume.Missing() {
		w.stop(Finding{diagnosis.VolumeMissing, ref(PersistentVolume, "", w.VolumeName), "there is none, and the volume handle is not recorded: no attacher can know what to detach", "restore the PersistentVolume with the same name and handle; take the finalizer away only if the storage system shows the volume detached"})
	}
	if va.Annotations[attach.AnnotationNodeID] == "" {
		w.withoutDriver()
	}
	w.secret()
	w.tries(va.Status.DetachError)
	if w.report.Stop == nil {
		w.stop(Finding{diagnosis.BeingDetached, w.attachmentRef(), "ControllerUnpublishVolume has not succeeded yet", "wait; look at the log of the driver's controller if this lasts"})
	}
	for _, f := range va.Finalizers {
		if f != own {
			w.note(Finding{diagnosis.FinalizerOfAnother, w.attachmentRef(), "it has the finalizer " + f + " too, which is not an attacher's", "the object stays until its owner takes that one away"})
		}
	}
}

// foreignFinalizers explains a deleted VolumeAttachment without the attacher's finalizer.
func (w *walk) foreignFinalizers(va *storagev1.VolumeAttachment) {
	fact := "it has no finalizer left and goes any moment"
	next := "nothing"
	if len(va.Finalizers) > 0 {
		fact = "the attacher has let it go, what holds it is " + heldBy(va.Finalizers)
		next = "find out who set that finalizer: it is for them to take it away"
	}
	w.stop(Finding{diagnosis.FinalizerOfAnother, w.attachmentRef(), fact, next})
}

// withoutDriver stops if the driver has not registered a node ID on the node.
func (w *walk) withoutDriver() {
	if w.NodeName == "" || w.Driver == "" {
		return
	}
	object, node := "CSINode "+w.NodeName, w.CSINode.Value()
	switch {
	case w.CSINode.Missing() && w.Node.Missing():
		w.stop(Finding{diagnosis.NodeMissing, "Node " + w.NodeName, "there is none, nor a CSINode: the machine is gone", "nothing can be attached to it: delete the Pod, and the VolumeAttachment if nobody does"})
	case w.CSINode.Missing():
		w.stop(Finding{diagnosis.NodeWithoutCSI, object, "there is none: the node's kubelet has registered no CSI driver yet", w.action(diagnosis.NodeWithoutCSI)})
	case node != nil:
		for _, d := range node.Spec.Drivers {
			if d.Name == w.Driver {
				w.ok("%s has driver %s, node ID %s", object, w.Driver, d.NodeID)
				return
			}
		}
		w.stop(Finding{diagnosis.NodeWithoutDriver, object, fmt.Sprintf("driver %s is not registered on the node", w.Driver), w.action(diagnosis.NodeWithoutDriver)})
	}
}

// secret stops if the secret of the calls does not exist.
func (w *walk) secret() {
	s := w.Secret
	if !s.Object.Missing() {
		return
	}
	if w.Attachment.Value().DeletionTimestamp != nil {
		w.note(Finding{diagnosis.SecretMissing, "Secret " + s.Namespace + "/" + s.Name, "there is none; the detach uses what is still known of it, or goes without", "create it if the detach fails"})
		return
	}
	w.stop(Finding{diagnosis.SecretMissing, "Secret " + s.Namespace + "/" + s.Name, "there is none, and the volume names it in controllerPublishSecretRef", w.action(diagnosis.SecretMissing)})
}
