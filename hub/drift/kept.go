package drift

import (
	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Facts decide whether a volume that a listing shows at a target may be detached there.
type Facts struct {
	Unasked bool             // attachRequired is false: no VolumeAttachment has to ask for a volume
	Nodes   []string         // of this cluster for which the driver has registered the node ID
	Volumes []*attach.Volume // of all drivers that have the volume handle; none if none is the driver's
	Partial bool             // the cache may lack VolumeAttachments from before a takeover
	// Claimant is a VolumeAttachment that may ask for the target, or did when the driver was asked.
	Claimant string
	Changed  bool // there was work for the volume at the target since the driver was asked
	// Missing is a VolumeAttachment whose volume is attached, and not listed on its node: the formats of IDs may differ.
	Missing string

	Action registry.UnexpectedAction
	User   string // a node that uses the volume
	// Unsure is a node that may use the volume, with "is not known" and why. A Node that is gone proves nothing: its Pods may run on.
	Unsure string
}

// WhyKept returns why a volume must not be detached from the target where a listing has it, for people: the first reason that holds. ""
// means that it may be detached. dangling reports whether it is dangling there, so that it is reported if it is kept.
func WhyKept(f Facts) (why string, dangling bool) {
	two := ""
	if len(f.Volumes) > 1 {
		two = f.Volumes[0].Name + " and " + f.Volumes[1].Name
	}
	for _, reason := range []struct {
		holds, dangling bool
		why             string
	}{
		{f.Unasked, false, "attachRequired is false"},
		{len(f.Nodes) == 0, false, "no CSINode of this cluster has the node ID"},
		{len(f.Volumes) == 0, false, "no PersistentVolume of the driver in this cluster has the volume handle"},
		{two != "", false, "two PersistentVolumes have the volume handle: " + two},
		{f.Partial, false, "the cache may lack VolumeAttachments that a former leader has worked for"},
		{f.Claimant != "", false, "VolumeAttachment " + f.Claimant + " may ask for it there"},
		{f.Changed, false, "other work on the volume has begun there"},
		{f.Missing != "", false, "the driver does not report the volume on the node of VolumeAttachment " + f.Missing + ", where it is attached"},
		{f.Action != registry.UnexpectedDetach, true, "drift.unexpected is " + string(f.Action)},
		{f.User != "", true, "it is in use on node " + f.User},
		{f.Unsure != "", true, "whether it is in use on node " + f.Unsure},
	} {
		if reason.holds {
			return reason.why, reason.dangling
		}
	}
	return "", true
}
