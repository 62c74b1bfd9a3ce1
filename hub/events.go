package hub

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventrecord "k8s.io/client-go/tools/record"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// Reasons of the Events on VolumeAttachments.
const (
	attachFailed  = "AttachFailed"
	detachFailed  = "DetachFailed"
	attachStuck   = "AttachStuck"
	detachStuck   = "DetachStuck"
	driftDetected = "DriftDetected"
	foreignWriter = "ForeignWriter"
	detachGivenUp = "DetachGivenUp"
)

// events tells of what goes wrong on the VolumeAttachment that it is about. Whoever
// records them drops repetitions and bounds their rate.
type events struct {
	recorder eventrecord.EventRecorder // nil: nobody is told
}

func (e events) warn(va *storagev1.VolumeAttachment, reason, message string) {
	if e.recorder != nil {
		e.recorder.Event(va, corev1.EventTypeWarning, reason, message)
	}
}

// failed tells of a try that failed.
func (e events) failed(va *storagev1.VolumeAttachment, op attach.Operation, cause error) {
	reason := attachFailed
	if op == attach.Detaching {
		reason = detachFailed
	}
	e.warn(va, reason, attach.Message(cause))
}

// stuck tells that an operation has been without success for long.
func (e events) stuck(va *storagev1.VolumeAttachment, op attach.Operation, why string) {
	reason := attachStuck
	if op == attach.Detaching {
		reason = detachStuck
	}
	e.warn(va, reason, why)
}

// drift tells that the storage system has it otherwise.
func (e events) drift(va *storagev1.VolumeAttachment, kind attach.DriftKind, action string) {
	e.warn(va, driftDetected, fmt.Sprintf("the driver's list of volumes says otherwise: %s, and the answer to that is: %s", kind, action))
}

// gaveUp tells that an unowned publication is not detached any more.
func (e events) gaveUp(u volume.Unowned) {
	e.warn(goneObject(u.FormerOwner), detachGivenUp, attach.Text(fmt.Sprintf("gave up to detach volume %q from node ID %q: tried %d times, the driver does not know it there: %s",
		u.Target.VolumeHandle, u.Target.NodeID, u.Failures, u.Error)))
}

// goneObject stands for a VolumeAttachment that is gone, in an Event.
func goneObject(id volume.Identity) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: id.Name, UID: id.UID}}
}

// foreign tells that another attacher wrote the VolumeAttachment.
func (e events) foreign(va *storagev1.VolumeAttachment, w attach.Write) {
	e.warn(va, foreignWriter, fmt.Sprintf("another attacher (%s) wrote its %s, while this hub serves the driver", w.Manager, w.What))
}
