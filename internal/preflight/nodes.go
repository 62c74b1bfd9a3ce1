package preflight

import (
	"fmt"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// checkNodes checks that each node with VolumeAttachments of the driver has a node ID of it.
func checkNodes(u usage) Check {
	const name = "node IDs"
	var missing []string
	for node := range u.wanted {
		if !u.registered[node] {
			missing = append(missing, node)
		}
	}
	slices.Sort(missing)
	switch {
	case len(missing) > 0:
		return failed(name, fmt.Sprintf("%d of %d nodes with VolumeAttachments have no node ID of the driver in their CSINode, for example %s", len(missing), len(u.wanted), missing[0]),
			diagnosis.Cause{Verdict: diagnosis.NodeWithoutDriver}.Action(missing[0], "", ""))
	case len(u.registered) == 0:
		return warning(name, "no CSINode has a node ID of the driver", "Check the name of the driver, and that its node plugin (a DaemonSet) runs.")
	}
	if len(u.wanted) == 0 {
		return ok(name, fmt.Sprintf("CSINodes with the driver: %d; it has no VolumeAttachment", len(u.registered)))
	}
	return ok(name, fmt.Sprintf("CSINodes with the driver: %d; all %d nodes with VolumeAttachments are among them", len(u.registered), len(u.wanted)))
}
