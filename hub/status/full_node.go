package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// FullNode returns what is known of a full node of the driver, nil if it is not known to be full.
func (d *Driver) FullNode(node string) *FullNode {
	if i := slices.IndexFunc(d.FullNodes, func(n FullNode) bool { return n.Node == node }); i >= 0 {
		return &d.FullNodes[i]
	}
	return nil
}

// Diagnose says that the node can have no more volumes of a driver, who waits for a place there, and how one becomes free.
func (n FullNode) Diagnose(driver string) diagnosis.Diagnosis {
	d := diagnosis.New(diagnosis.NodeFull, "Node "+n.Node, "can have no more volumes of driver "+driver, "its CSINode has no limit (allocatable.count)",
		fmt.Sprintf("Move the waiting Pod to another node: cordon node %s and delete the Pod, so that its controller makes it again. Uncordon the node when the Pod runs elsewhere.", n.Node)).From(n.Since)
	if n.Limit == 0 {
		d.Actions = append(d.Actions, "If the driver's error names a quota of the storage system, raise the quota: another node does not help.")
	} else {
		d.Detail = "its limit is " + count(n.Limit) + " (allocatable.count of the CSINode)"
	}
	if n.Waiting > 0 { // else not more than the limit is known
		d.Detail += ", " + plural(n.Attached, "volume is attached", "volumes are attached") + "; " + plural(n.Waiting, "attach waits", "attaches wait") + " for a place"
	}
	return d
}

// nodeFull says that the node can have no more volumes of the driver, and where the VolumeAttachment is in the line.
func (in DiagnosisInput) nodeFull() diagnosis.Diagnosis {
	a := in.Attachment
	full := cmp.Or(in.Driver.FullNode(a.Waiting.Node), &FullNode{Node: a.Waiting.Node, Limit: a.Waiting.Limit})
	d := full.Diagnose(a.Driver)
	if a.Waiting.Position > 0 {
		d.Detail += fmt.Sprintf("; this one is number %d in line", a.Waiting.Position)
	}
	if cause := a.Cause(); cause.Code == "ResourceExhausted" {
		_, text := diagnosis.Parse(a.LastError, cause.Code)
		d.Detail += "; the driver answered " + diagnosis.Because(cause.Code, text)
	}
	pods := a.Pods
	if namespace, _, _ := strings.Cut(a.Claim, "/"); len(pods) == 0 {
		pods = []string{cmp.Or(namespace, "NAMESPACE") + "/POD"}
	}
	move := [][]string{{"kubectl", "cordon", full.Node}}
	for _, pod := range pods {
		namespace, name, _ := strings.Cut(pod, "/")
		move = append(move, []string{"kubectl", "-n", namespace, "delete", "pod", name})
	}
	d.Commands = diagnosis.Commands(move...)
	return d
}

// addFull adds the nodes on which attaches wait for a place.
func (h *Health) addFull(d Driver) {
	if d.WaitingForCapacity == 0 || len(d.FullNodes) == 0 {
		return
	}
	longest := d.FullNodes[0]
	on := "node " + longest.Node
	if longest.Waiting < d.WaitingForCapacity {
		on = "full nodes, most of them on " + on
	}
	h.add(Attention, d.says(diagnosis.NodeFull, plural(d.WaitingForCapacity, "volume waits", "volumes wait")+" for a place on "+on, "",
		"Move a Pod with a volume of the driver away from the node, or wait until one ends. csi-attach-hub explain NAME says for a waiting Pod or VolumeAttachment what to do.").From(longest.Since))
}
