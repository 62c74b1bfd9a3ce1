package explain

import (
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
		w.stop(found(diagnosis.VolumeMissing, ref(PersistentVolume, "", w.VolumeName), "does not exist, and the VolumeAttachment names it", w.action(diagnosis.VolumeMissing)))
	case pv != nil && pv.DeletionTimestamp != nil:
		w.stop(w.lasting(diagnosis.VolumeBeingDeleted, ref(PersistentVolume, "", pv.Name), "being deleted", pv.DeletionTimestamp.Time, heldBy(pv.Finalizers), w.action(diagnosis.VolumeBeingDeleted)))
	case pv != nil && w.Driver == "":
		w.stop(found(diagnosis.VolumeNotCSI, ref(PersistentVolume, "", pv.Name), "neither a CSI volume nor migrated to CSI", "Delete the VolumeAttachment: no attacher can attach this volume."))
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
		w.stop(found(diagnosis.VolumeMissing, ref(PersistentVolume, "", w.VolumeName), "does not exist, and the VolumeAttachment does not record the volume handle: no attacher knows what to detach", "Restore the PersistentVolume with the same name and handle. Remove the finalizer only if the storage system shows the volume as detached."))
	}
	if va.Annotations[attach.AnnotationNodeID] == "" {
		w.withoutDriver()
	}
	w.secret()
	w.tries(va.Status.DetachError)
	if w.report.Stop == nil {
		w.stop(found(diagnosis.BeingDetached, w.attachmentRef(), "ControllerUnpublishVolume has not succeeded yet", "Wait some seconds. If this lasts, look at the log of the driver's controller."))
	}
	for _, f := range va.Finalizers {
		if f != own {
			w.note(found(diagnosis.FinalizerOfAnother, w.attachmentRef(), "has the finalizer "+f+", which no attacher sets", "Ask the owner of that finalizer to remove it: the object stays until then."))
		}
	}
}

// foreignFinalizers explains a deleted VolumeAttachment without the attacher's finalizer.
func (w *walk) foreignFinalizers(va *storagev1.VolumeAttachment) {
	fact := "has no finalizer left and is about to be removed"
	next := "Wait some seconds."
	if len(va.Finalizers) > 0 {
		fact = "the attacher has removed its finalizer; the object is " + heldBy(va.Finalizers)
		next = "Ask the owner of that finalizer to remove it."
	}
	w.stop(found(diagnosis.FinalizerOfAnother, w.attachmentRef(), fact, next))
}

// withoutDriver stops if the driver has not registered a node ID on the node.
func (w *walk) withoutDriver() {
	if w.NodeName == "" || w.Driver == "" {
		return
	}
	object, node := "CSINode "+w.NodeName, w.CSINode.Value()
	switch {
	case w.CSINode.Missing() && w.Node.Missing():
		w.stop(found(diagnosis.NodeMissing, "Node "+w.NodeName, "does not exist, and has no CSINode: the node is gone", "Delete the Pod, and the VolumeAttachment if it stays: nothing can be attached to this node."))
	case w.CSINode.Missing():
		w.stop(found(diagnosis.NodeWithoutCSI, object, "does not exist: the node's kubelet has registered no CSI driver yet", w.action(diagnosis.NodeWithoutCSI)))
	case node != nil:
		for _, d := range node.Spec.Drivers {
			if d.Name == w.Driver {
				w.ok("%s has driver %s, node ID %s", object, w.Driver, d.NodeID)
				return
			}
		}
		w.stop(found(diagnosis.NodeWithoutDriver, object, "driver "+w.Driver+" is not registered on the node", w.action(diagnosis.NodeWithoutDriver)))
	}
}

// secret stops if the secret of the calls does not exist.
func (w *walk) secret() {
	s := w.Secret
	if !s.Object.Missing() {
		return
	}
	if w.Attachment.Value().DeletionTimestamp != nil {
		fact, next := "does not exist: the detach uses the content that the volume was attached with, and fails if the hub does not remember it", "Create the secret if the detach fails."
		w.note(found(diagnosis.SecretMissing, "Secret "+s.Namespace+"/"+s.Name, fact, next))
		return
	}
	w.stop(found(diagnosis.SecretMissing, "Secret "+s.Namespace+"/"+s.Name, "does not exist, and the PersistentVolume names it in controllerPublishSecretRef", w.action(diagnosis.SecretMissing)))
}
