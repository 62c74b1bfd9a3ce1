package explain

import (
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// leftAttached notes where the volume was left attached, once for a volume on several nodes.
func (w *walk) leftAttached(before []Volume) {
	if w.Served == nil || slices.ContainsFunc(before, func(v Volume) bool { return v.isSameVolume(w.Volume) }) {
		return
	}
	for _, u := range w.Served.Unowned {
		if w.isOfVolume(u) && !w.refusedBecauseOf(u) {
			w.note(w.leftFinding("driver "+w.Driver, "", w.Driver, u))
		}
	}
}

// refusedBecauseOf reports whether the walk has stopped at a publication of the volume.
func (w *walk) refusedBecauseOf(u status.UnownedPublication) bool {
	return w.stopsAt(diagnosis.PublishedElsewhere) &&
		slices.ContainsFunc(w.Seen.Value().Elsewhere, func(e status.Elsewhere) bool { return e.NodeID == u.NodeID })
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

// leftFinding says where a volume was left attached and how the tries to detach it ended. before is put before that.
func (f *Facts) leftFinding(object, before, driver string, u status.UnownedPublication) Finding {
	d := u.Diagnose(driver)
	d.Object, d.Fact = object, before+d.Fact
	return f.finding(d)
}

// notFound says that there is no such object, and what it left attached.
func notFound(f *Facts) *Finding {
	for _, d := range f.Hub.View.Drivers {
		for _, u := range d.Unowned {
			if f.Question == (Question{Kind: VolumeAttachment, Name: u.VolumeAttachment}) || f.Question == (Question{Kind: PersistentVolume, Name: u.PersistentVolume}) {
				stop := f.leftFinding(f.Question.String(), "does not exist any more, and ", d.Name, u)
				stop.Verdict = diagnosis.ObjectNotFound
				return &stop
			}
		}
	}
	next := "Check the spelling and the namespace."
	if f.Question.Kind == VolumeAttachment {
		next = "Check the spelling: a VolumeAttachment is deleted when its volume is detached. Otherwise g" + forms[1:] + "."
	}
	return new(found(diagnosis.ObjectNotFound, f.Question.String(), "does not exist", next))
}
