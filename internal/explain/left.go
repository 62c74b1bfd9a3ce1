package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// leftNext is what to do about a volume that was left attached.
const leftNext = "wait, the hub detaches it there; if the tries fail, look at the log of the driver's controller"

// leftAttached notes where the volume was left attached, once for a volume on several nodes.
func (w *walk) leftAttached(before []Volume) {
	if w.Served == nil || slices.ContainsFunc(before, func(v Volume) bool { return v.isSameVolume(w.Volume) }) {
		return
	}
	for _, u := range w.Served.Unowned {
		if w.isOfVolume(u) {
			w.note(Finding{diagnosis.LeftAttached, "driver " + w.Driver, leftFact(u, w.Now), leftNext})
		}
	}
}

// handle returns the volume's handle, "" if it is not known.
func (v *Volume) handle() string {
	if va := v.Attachment.Value(); va != nil && va.Annotations[attach.AnnotationVolumeHandle] != "" {
		return va.Annotations[attach.AnnotationVolumeHandle]
	}
	if pv := v.PersistentVolume.Value(); pv != nil {
		return attach.VolumeHandle(pv)
	}
	if spec := v.spec(); spec != nil && spec.CSI != nil {
		return spec.CSI.VolumeHandle
	}
	return ""
}

func (v *Volume) isSameVolume(other *Volume) bool {
	return v.Driver == other.Driver && v.VolumeName == other.VolumeName && v.handle() == other.handle()
}

// isOfVolume reports whether an unowned publication of the volume's driver is of this volume. A
// PersistentVolume may have been recreated with another handle: its name counts only if the handle is
// not known.
func (v *Volume) isOfVolume(u status.UnownedPublication) bool {
	if handle := v.handle(); handle != "" {
		return u.VolumeHandle == handle
	}
	return v.VolumeName != "" && u.PersistentVolume == v.VolumeName
}

// leftFact says where a volume was left attached and how the tries to detach it ended.
func leftFact(u status.UnownedPublication, now time.Time) string {
	fact := fmt.Sprintf("volume %s is or may be attached at node ID %s", u.VolumeHandle, u.NodeID)
	if u.Node != "" {
		fact += fmt.Sprintf(" (node %s)", u.Node)
	}
	fact += ", where no VolumeAttachment asks for it"
	if !u.Since.IsZero() {
		fact += ", known since " + diagnosis.At(u.Since, now)
	}
	switch {
	case u.Tries == 1:
		fact += "; one try to detach it has failed"
	case u.Tries > 1:
		fact += fmt.Sprintf("; %d tries in a row to detach it have failed", u.Tries)
	}
	if u.LastError != "" {
		fact += ": " + u.LastError
	}
	return fact
}

// notFound says that there is no such object, and what it left attached.
func notFound(f *Facts) *Finding {
	stop := &Finding{diagnosis.ObjectNotFound, f.Question.String(), "there is none", "check the spelling and the namespace; a VolumeAttachment that is gone was detached, or never made"}
	for _, d := range f.Hub.View.Drivers {
		for _, u := range d.Unowned {
			if f.Question == (Question{Kind: VolumeAttachment, Name: u.VolumeAttachment}) || f.Question == (Question{Kind: PersistentVolume, Name: u.PersistentVolume}) {
				stop.Fact, stop.Next = "there is none any more, and "+leftFact(u, f.Now), leftNext
			}
		}
	}
	return stop
}
