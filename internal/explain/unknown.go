package explain

import (
	"fmt"
	"slices"
)

// unknown returns what could not be read, each once.
func unknown(f Facts) []string {
	var all []string
	seen := map[string]bool{}
	add := func(what string, err error) {
		if text := fmt.Sprintf("%s: %v", what, err); err != nil && !seen[text] {
			seen[text] = true
			all = append(all, text)
		}
	}
	if f.Hub.Err != nil {
		add("the hub (which drivers it serves, whether it can call them, its queues, the next tries)", f.Hub.Err)
	}
	for _, r := range f.Hub.View.Replicas {
		if r.Error != "" && f.Hub.Err == nil {
			add("replica "+r.Replica, fmt.Errorf("%s", r.Error))
		}
	}
	add("the VolumeAttachments in the hub", f.RowsErr)
	add("the VolumeAttachments", f.Listed.Err())
	add("the checklist of the driver", f.Checks.Err())
	volumes := f.Volumes
	if f.Subject != nil {
		volumes = append(slices.Clip(volumes), *f.Subject)
	}
	for _, v := range volumes {
		add("the claim "+v.Namespace+"/"+v.ClaimName, v.Claim.Err())
		add("PersistentVolume "+v.VolumeName, v.PersistentVolume.Err())
		add("the VolumeAttachments", v.Attachment.Err())
		add("the VolumeAttachments", v.Others.Err())
		add("the Pods that use "+v.Namespace+"/"+v.ClaimName, v.Users.Err())
		add("the state of the VolumeAttachment in the hub", v.Seen.Err())
		add("the health of the volume, which the driver may report", v.Reported.Err())
		add("Node "+v.NodeName, v.Node.Err())
		if other := v.otherNode(); other != nil {
			add("Node "+other.Spec.NodeName, v.OtherNode.Err())
		}
		add("CSINode "+v.NodeName, v.CSINode.Err())
		add("CSIDriver "+v.Driver, v.CSIDriver.Err())
		add("whether Secret "+v.Secret.Namespace+"/"+v.Secret.Name+" exists", v.Secret.Object.Err())
		if add("Lease "+v.Leases.Name, v.Leases.All.Err()); v.Leases.All.Err() == nil {
			add("Lease "+v.Leases.Name+" outside of "+v.Leases.Where, v.Leases.OthersErr)
		}
	}
	return all
}
