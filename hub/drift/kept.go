package drift

import (
	"strings"

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

// reasons are the reasons not to detach a volume; the first that holds counts.
var reasons = []struct {
	words    string // %s: the object that the rule returns
	dangling bool   // the volume is dangling nevertheless, so it is reported
	rule     func(Facts) (object string, holds bool)
}{
	{"attachRequired is false", false, func(f Facts) (string, bool) { return "", f.Unasked }},
	{"no CSINode of this cluster has the node ID", false, func(f Facts) (string, bool) { return "", len(f.Nodes) == 0 }},
	{"no PersistentVolume of the driver in this cluster has the volume handle", false, func(f Facts) (string, bool) {
		return "", len(f.Volumes) == 0
	}},
	{"two PersistentVolumes have the volume handle: %s", false, func(f Facts) (string, bool) {
		if len(f.Volumes) < 2 {
			return "", false
		}
		return f.Volumes[0].Name + " and " + f.Volumes[1].Name, true
	}},
	{"the cache may lack VolumeAttachments that a former leader has worked for", false, func(f Facts) (string, bool) {
		return "", f.Partial
	}},
	{"VolumeAttachment %s may ask for it there", false, func(f Facts) (string, bool) { return f.Claimant, f.Claimant != "" }},
	{"other work on the volume has begun there", false, func(f Facts) (string, bool) { return "", f.Changed }},
	{"the driver does not report the volume on the node of VolumeAttachment %s, where it is attached", false, func(f Facts) (string, bool) {
		return f.Missing, f.Missing != ""
	}},
	{"drift.unexpected is %s", true, func(f Facts) (string, bool) {
		return string(f.Action), f.Action != registry.UnexpectedDetach
	}},
	{"it is in use on node %s", true, func(f Facts) (string, bool) { return f.User, f.User != "" }},
	{"whether it is in use on node %s", true, func(f Facts) (string, bool) { return f.Unsure, f.Unsure != "" }},
}

// WhyKept returns why a volume must not be detached from the target where a listing has it, for people, and whether it is dangling
// there. "": it may be detached.
func WhyKept(facts Facts) (why string, dangling bool) {
	for _, r := range reasons {
		if object, holds := r.rule(facts); holds {
			return strings.ReplaceAll(r.words, "%s", object), r.dangling
		}
	}
	return "", true
}
