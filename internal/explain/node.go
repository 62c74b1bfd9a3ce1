package explain

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// explainNode answers for a node. worst is the health of its worst VolumeAttachment.
func explainNode(f *Facts, all []Group, worst status.HealthState) (*SubjectReport, Result) {
	w := &walk{Facts: f, Volume: f.Subject}
	s := &SubjectReport{Reasons: []Reason{}, Facts: []string{}}
	w.nodeNotes()
	for _, n := range w.report.Notes {
		s.add(status.Attention, n)
	}
	if c := ready(w.Node.Value()); c != nil && c.Status == corev1.ConditionTrue {
		s.say("Node %s is ready since %s", w.NodeName, w.at(c.LastTransitionTime.Time))
	}
	w.csiNode(s)
	for _, d := range f.Hub.View.Drivers {
		if n := d.FullNode(w.NodeName); n != nil && n.Waiting > 0 {
			s.add(status.Attention, f.finding(n.Diagnose(d.Name)))
		}
	}
	if len(s.Reasons) > 0 && status.Attention.Compare(worst) < 0 {
		worst = status.Attention
	}
	for _, r := range s.Reasons {
		if s.Since.IsZero() {
			s.Age = r.Age
		}
	}
	if worst != status.Fine && len(all) > 0 && all[0].Health == worst {
		s.Age = all[0].Volumes[0].Age
	}
	return s, Result(worst)
}

// csiNode says which drivers the node has, with their node IDs and limits, and how many volumes are attached.
func (w *walk) csiNode(s *SubjectReport) {
	if w.CSINode.Missing() {
		s.add(status.Attention, found(diagnosis.NodeWithoutCSI, "CSINode "+w.NodeName, "does not exist: the node's kubelet has registered no CSI driver", w.action(diagnosis.NodeWithoutCSI)))
	}
	if w.CSINode.Value() == nil {
		return
	}
	all, attached := map[string]int{}, map[string]int{}
	for _, va := range items(w.Listed) {
		if all[va.Spec.Attacher]++; va.Status.Attached {
			attached[va.Spec.Attacher]++
		}
	}
	registered := map[string]bool{}
	for _, d := range w.CSINode.Value().Spec.Drivers {
		registered[d.Name] = true
		s.say("driver %s: node ID %s, %s, VolumeAttachments: %d, of these attached: %d", d.Name, cmp.Or(d.NodeID, "unknown"), limitOf(d), all[d.Name], attached[d.Name])
	}
	if len(registered) == 0 {
		s.say("CSINode %s has no driver", w.NodeName)
	}
	for _, va := range items(w.Listed) {
		if name := va.Spec.Attacher; !registered[name] && va.DeletionTimestamp == nil {
			registered[name] = true // once
			w.Driver = name
			s.add(status.Attention, found(diagnosis.NodeWithoutDriver, "CSINode "+w.NodeName, "driver "+name+" is not registered on the node", w.action(diagnosis.NodeWithoutDriver)))
		}
	}
}

// limitOf says how many volumes of a driver a node may have.
func limitOf(d storagev1.CSINodeDriver) string {
	if d.Allocatable == nil || d.Allocatable.Count == nil {
		return "no limit"
	}
	return fmt.Sprintf("limit %d (allocatable.count)", *d.Allocatable.Count)
}
