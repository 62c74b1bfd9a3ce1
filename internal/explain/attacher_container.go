package explain

import (
	"fmt"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

// attacher returns the container of a workload that runs a csi-attacher, and whether there is exactly one.
func (w *Workload) attacher() (index int, found bool) {
	for i, c := range w.Spec.Template.Spec.Containers {
		if !adopt.IsAttacher(c) {
			continue
		}
		if found {
			return 0, false
		}
		index, found = i, true
	}
	return index, found
}

// withoutContainer returns the command that ends a container of the workload. It fails if the container has another place
// by then.
func (w *Workload) withoutContainer(i int) []string {
	all := w.Spec.Template.Spec.Containers
	if len(all) == 1 {
		return w.kubectl("scale", "--replicas=0")
	}
	place := fmt.Sprintf("/spec/template/spec/containers/%d", i)
	return append(w.kubectl("patch"), "--type=json", "-p", patch(test(place+"/name", all[i].Name), removal{"remove", place}))
}

// endAttacher adds to a finding how the csi-attacher of the driver's workload ends, and reports whether that is known.
func (w *walk) endAttacher(f *Finding) bool {
	c := w.Workload
	if c == nil {
		return false
	}
	i, found := c.attacher()
	if !found || c.Kind == "DaemonSet" && len(c.Spec.Template.Spec.Containers) == 1 {
		return false
	}
	f.Commands = diagnosis.Commands(c.withoutContainer(i))
	f.Next = strings.TrimSpace(f.Next + fmt.Sprintf(" Container %s of %s is that attacher. A Helm release or a GitOps tool that owns the object puts the container back:"+
		" deploy/HANDOVER.md has the way that lasts.", c.Spec.Template.Spec.Containers[i].Name, c.ref()))
	return true
}

// endWriter cures a driver whose VolumeAttachments another attacher writes too.
func (w *walk) endWriter(f *Finding) { w.endAttacher(f) }
