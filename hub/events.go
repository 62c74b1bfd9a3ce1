package hub

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventrecord "k8s.io/client-go/tools/record"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Reasons of the Events on VolumeAttachments, on PersistentVolumes that are published where no VolumeAttachment asks
// for them, and on CSIDrivers.
const (
	attachFailed  = "AttachFailed"
	detachFailed  = "DetachFailed"
	attachStuck   = "AttachStuck"
	detachStuck   = "DetachStuck"
	driftDetected = "DriftDetected"
	foreignWriter = "ForeignWriter"
	detachGivenUp = "DetachGivenUp"
	noAttach      = "AttachRequiredFalse"
)

// events records warnings on VolumeAttachments and PersistentVolumes. The recorder drops repetitions and bounds the rate.
type events struct {
	recorder eventrecord.EventRecorder // nil: nothing is recorded
}

func (e events) warn(object runtime.Object, reason, message string) {
	if e.recorder != nil {
		e.recorder.Event(object, corev1.EventTypeWarning, reason, message)
	}
}

// failed reports a try that failed.
func (e events) failed(object runtime.Object, op attach.Operation, cause error) {
	reason := attachFailed
	if op == attach.Detaching {
		reason = detachFailed
	}
	e.warn(object, reason, attach.Message(cause))
}

// stuck reports that an operation has had no success for long.
func (e events) stuck(va *storagev1.VolumeAttachment, op attach.Operation, why string) {
	reason := attachStuck
	if op == attach.Detaching {
		reason = detachStuck
	}
	e.warn(va, reason, why)
}

// drift reports that the storage system no longer has the volume published where Kubernetes has it attached.
func (e events) drift(va *storagev1.VolumeAttachment, action registry.DriftAction) {
	message := "ListVolumes no longer reports the volume on this node; attaching it again"
	if action != registry.DriftReattach {
		message = "ListVolumes no longer reports the volume on this node; not attaching it again because drift.action is " + string(action)
	}
	e.warn(va, driftDetected, message)
}

// dangling reports that the driver has a volume published where no VolumeAttachment asks for it.
func (e events) dangling(v *attach.Volume, at attach.Target, node, end string) {
	e.warn(v.Object(), driftDetected, attach.Text(fmt.Sprintf("the driver reports volume %q on node %q (node ID %q), where no VolumeAttachment asks for it; %s", at.VolumeHandle, node, at.NodeID, end)))
}

// gaveUp reports on an object that the hub no longer tries to detach an unowned publication.
func (e events) gaveUp(object runtime.Object, u volume.Unowned) {
	e.warn(object, detachGivenUp, attach.Text(fmt.Sprintf("gave up detaching volume %q from node ID %q after %d tries: the driver reports that it is not there: %s",
		u.Target.VolumeHandle, u.Target.NodeID, u.Failures, u.Error)))
}

// noAttach reports that attachRequired of a CSIDriver became false while volumes are attached. The object may be gone by now.
func (e events) noAttach(object *storagev1.CSIDriver, text string) {
	if object != nil {
		e.warn(object, noAttach, text)
	}
}

// formerObject returns what is known of a deleted VolumeAttachment, for Events and log lines about it.
func formerObject(id volume.Identity) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: id.Name, UID: id.UID}}
	va.Spec.NodeName, va.Spec.Source.PersistentVolumeName = id.Node, &id.PersistentVolume
	return va
}

// conflict reports that another attacher wrote the VolumeAttachment.
func (e events) conflict(va *storagev1.VolumeAttachment, w attach.Write) {
	e.warn(va, foreignWriter, fmt.Sprintf("another attacher (%s) wrote %s while this hub serves the driver", w.Manager, w.What))
}
