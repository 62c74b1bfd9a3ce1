package hub

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// UnclaimedSince returns the drivers that are not served here, by attacher, for which a VolumeAttachment waits: since
// when the longest-waiting one shows no sign of any attacher. A csi-attacher that serves the driver makes the time
// move on with each attach, detach and error that it writes; nobody does for a driver that nobody serves.
func (h *Hub) UnclaimedSince() map[string]time.Time {
	since := map[string]time.Time{}
	for attacher := range h.Unclaimed() {
		decider := attach.Driver{Name: attacher, NoAttach: !h.cluster.AttachRequired(attacher)}
		for _, va := range h.cluster.AttachmentsOfDriver(attacher) {
			t := untouchedSince(va, decider.RequiredOperation(va))
			if oldest, ok := since[attacher]; !t.IsZero() && (!ok || t.Before(oldest)) {
				since[attacher] = t
			}
		}
	}
	return since
}

// untouchedSince returns when an operation was asked for, or when an attacher last wrote an error of it if that was
// later. It is zero if no operation is due.
func untouchedSince(va *storagev1.VolumeAttachment, op attach.Operation) time.Time {
	since, lastError := wantedSince(va, op), va.Status.AttachError
	if op == attach.Detaching {
		lastError = va.Status.DetachError
	}
	if !since.IsZero() && lastError != nil && lastError.Time.After(since) {
		return lastError.Time.Time
	}
	return since
}
