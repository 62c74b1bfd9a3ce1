package explain

import (
	"context"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// getVolumeHealth is the capability of a driver that reports the health of its volumes (CSI 1.13, alpha).
const getVolumeHealth = "GET_VOLUME_HEALTH"

// mostProblems bounds the problems of a volume that a report names, mostText each of their texts.
const mostProblems, mostText = 5, 300

// volumeHealth has the hub ask the driver about the volume. Questions about many volumes do not: each would cost a call
// of the driver.
func (g *gatherer) volumeHealth(ctx context.Context, v *Volume) Object[status.VolumeHealth] {
	if g.rows != nil || v.Attachment.Value() == nil || v.Served == nil || !slices.Contains(v.Served.Capabilities, getVolumeHealth) {
		return Object[status.VolumeHealth]{}
	}
	return answered(g.Hub.VolumeHealth(ctx, v.Served.Replica, v.Attachment.Value().Name))
}

// healthNotes notes the problems that the driver reports about the volume.
func (w *walk) healthNotes() {
	health := w.Reported.Value()
	if health == nil {
		return
	}
	object := "VolumeAttachment " + w.Attachment.Value().Name
	if w.VolumeName != "" {
		object = ref(PersistentVolume, "", w.VolumeName)
	}
	for _, p := range health.Problems[:min(mostProblems, len(health.Problems))] {
		fact := "the driver reports the volume as " + csiclient.Truncate(p.Status, mostText)
		if p.Reason != "" {
			fact += " (" + csiclient.Truncate(p.Reason, mostText) + ")"
		}
		w.note(found(diagnosis.VolumeUnhealthy, object, diagnosis.Because(fact, csiclient.Truncate(p.Message, mostText)),
			"Look at the volume in the storage system, and at the log of the driver's controller: attaching does not repair it."))
	}
}
