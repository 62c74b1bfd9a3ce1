package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// FullNode returns what is known of a full node of the driver, nil if it is not known to be full.
func (d *Driver) FullNode(node string) *FullNode {
	if d == nil {
		return nil
	}
	for i := range d.FullNodes {
		if d.FullNodes[i].Node == node {
			return &d.FullNodes[i]
		}
	}
	return nil
}

// nodeFull says that the node can have no more volumes of the driver, who goes first, and how a place becomes free.
func (in DiagnosisInput) nodeFull() diagnosis.Diagnosis {
	a, node := in.Attachment, in.Attachment.Waiting.Node
	full := in.Driver.FullNode(node)
	d := diagnosis.Diagnosis{Verdict: diagnosis.NodeFull, Object: "Node " + node, Fact: "can have no more volumes of driver " + a.Driver}
	details := []string{limitText(a.Waiting.Limit, full)}
	var ahead []string
	if full != nil {
		d.Since = full.Since
		ahead = full.Line[:min(len(full.Line), max(0, a.Waiting.Position-1))]
	}
	if a.Waiting.Position > 0 {
		details = append(details, a.placeInLine(full, ahead))
	}
	if cause := a.Cause(); cause.Code == "ResourceExhausted" {
		_, text := diagnosis.Parse(a.LastError, cause.Code)
		details = append(details, "the driver answered "+diagnosis.Because(cause.Code, text))
	}
	d.Detail = strings.Join(details, "; ")
	d.Actions, d.Commands = in.makeRoom(full), a.moveCommands()
	return d
}

// Diagnose says that the node can have no more volumes of a driver, and who waits for a place there.
func (n FullNode) Diagnose(driver string) diagnosis.Diagnosis {
	text := plural(n.Waiting, "VolumeAttachment waits", "VolumeAttachments wait") + " for a place"
	if len(n.Line) > 0 {
		text += ", first " + n.Line[0]
	}
	return diagnosis.Diagnosis{Verdict: diagnosis.NodeFull, Object: "Node " + n.Node, Fact: "can have no more volumes of driver " + driver,
		Since: n.Since, Detail: limitText(n.Limit, &n) + "; " + text,
		Actions: []string{"Move a Pod with a volume of the driver away from the node. csi-attach-hub explain NAME says for a waiting Pod or VolumeAttachment what else to do."}}
}

// placeInLine says where the VolumeAttachment is in the line of its node, and who goes first.
func (a Attachment) placeInLine(full *FullNode, ahead []string) string {
	text := ordinal(a.Waiting.Position) + " in line"
	if full != nil && full.Waiting > 0 {
		text += " of " + count(full.Waiting)
	}
	if len(ahead) > 0 {
		text += ", after " + strings.Join(ahead, ", ")
		if more := a.Waiting.Position - 1 - len(ahead); more > 0 {
			text += " and " + count(more) + " more"
		}
	}
	return text
}

// limitText says how many volumes the node can have, and how many VolumeAttachments have theirs attached there.
func limitText(limit int, full *FullNode) string {
	text := "its CSINode has no limit (allocatable.count)"
	if limit > 0 {
		text = "its limit is " + count(limit) + " (allocatable.count of the CSINode)"
	}
	if full != nil {
		text += ", " + plural(full.Attached, "volume is attached", "volumes are attached")
	}
	return text
}

// makeRoom says how a place becomes free, and what else may be wrong.
func (in DiagnosisInput) makeRoom(full *FullNode) []string {
	a, node := in.Attachment, in.Attachment.Waiting.Node
	actions := []string{
		fmt.Sprintf("Move the waiting Pod to another node: cordon node %s and delete the Pod, so that its controller makes it again. Uncordon the node when the Pod runs elsewhere.", node),
		fmt.Sprintf("Or move another Pod with a volume of driver %s away from the node: the first attach in line goes when a volume is detached there.", a.Driver),
	}
	switch limit := a.Waiting.Limit; {
	case limit == 0:
		actions = append(actions, "Have the driver's node plugin report its limit (max_volumes_per_node). Without one in the CSINode the scheduler does not know that the node is full, and places Pods there.")
	case full != nil && full.Attached < limit:
		actions = append(actions, fmt.Sprintf("Find out what has the other %s: %s. If they stay, lower the limit that the driver's node plugin reports.",
			plural(limit-full.Attached, "place", "places"), in.otherPlaces(node)))
	}
	return actions
}

// otherPlaces names what may have places on a node besides the attached VolumeAttachments.
func (in DiagnosisInput) otherPlaces(node string) string {
	const others = "on some platforms volumes of other drivers, the machine's own disks and its network interfaces count too"
	var left []string
	for _, u := range in.Driver.Unowned {
		if u.Node == node && len(left) < MostWaiters {
			left = append(left, u.VolumeHandle)
		}
	}
	if len(left) == 0 {
		return others
	}
	return plural(len(left), "volume is", "volumes are") + " attached there without a VolumeAttachment (" + strings.Join(left, ", ") + "), and " + others
}

// moveCommands are the commands that have the Pods of the volume made again on another node.
func (a Attachment) moveCommands() []string {
	pods := a.Pods
	if len(pods) == 0 {
		namespace, _, ok := strings.Cut(a.Claim, "/")
		if !ok {
			namespace = "NAMESPACE"
		}
		pods = []string{namespace + "/POD"}
	}
	commands := [][]string{{"kubectl", "cordon", a.Waiting.Node}}
	for _, pod := range pods {
		if namespace, name, ok := strings.Cut(pod, "/"); ok {
			commands = append(commands, []string{"kubectl", "-n", namespace, "delete", "pod", name})
		}
	}
	return diagnosis.Commands(commands...)
}

// addFull adds the nodes on which attaches wait for a place.
func (h *Health) addFull(d Driver) {
	if d.WaitingForCapacity == 0 {
		return
	}
	since := time.Time{}
	nodes := slices.DeleteFunc(slices.Clone(d.FullNodes), func(n FullNode) bool { return n.Waiting == 0 })
	for _, n := range nodes {
		since = earliest(since, n.Since)
	}
	fact := plural(d.WaitingForCapacity, "volume waits", "volumes wait") + " for a place on "
	switch {
	case len(nodes) == 0:
		fact += "full nodes"
	case len(nodes) == 1:
		fact += "node " + nodes[0].title()
	default:
		fact += count(len(nodes)) + " full nodes, most of them on node " + nodes[0].title()
	}
	h.add(d.brokenIfStuck(Attention), diagnosis.Diagnosis{
		Verdict: diagnosis.NodeFull, Object: d.ref(), Fact: fact, Since: since, Detail: d.neededBy(),
		Actions: []string{"Move a Pod with a volume of the driver away from the node, or wait until one ends. csi-attach-hub explain NAME says for a waiting Pod or VolumeAttachment what to do."},
	})
}

// title returns the name of the node with its limit.
func (n FullNode) title() string {
	if n.Limit == 0 {
		return n.Node + " (no limit in its CSINode)"
	}
	return fmt.Sprintf("%s (limit %s)", n.Node, count(n.Limit))
}
