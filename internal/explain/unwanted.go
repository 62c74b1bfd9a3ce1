package explain

import (
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// withdraw deletes a VolumeAttachment that can never be attached, after the Pods that ask for it. The hub removes its
// finalizer only after it has detached what may be attached.
func (w *walk) withdraw(f *Finding) {
	va := w.Attachment.Value()
	if va == nil || va.DeletionTimestamp != nil || va.Status.Attached {
		return
	}
	var lines [][]string
	for _, pod := range items(w.Users) {
		if pod.Spec.NodeName == va.Spec.NodeName && f.Verdict == diagnosis.NodeMissing && pod.DeletionTimestamp == nil {
			lines = append(lines, []string{"kubectl", "-n", pod.Namespace, "delete", "pod", pod.Name, "--wait=false"})
		}
	}
	f.Commands = diagnosis.Commands(append(lines, []string{"kubectl", "delete", "volumeattachment", va.Name})...)
}
