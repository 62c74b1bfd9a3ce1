package status

import (
	"cmp"
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Diagnose says where a volume of a driver is published without a VolumeAttachment, how the tries to detach it ended, and
// what to do.
func (u DanglingPublication) Diagnose(driver string) diagnosis.Diagnosis {
	is, place := "is or may be attached", "node ID "+u.NodeID
	if u.FromList {
		is = "is listed"
	}
	if u.Node != "" {
		place += " (node " + u.Node + ")"
	}
	d := diagnosis.New(diagnosis.Dangling, "driver "+driver, fmt.Sprintf("volume %s %s at %s without a VolumeAttachment", u.VolumeHandle, is, place), u.LastError,
		"Wait: the hub detaches it there. If the tries fail, look at the log of the driver's controller.").From(u.Since)
	if u.ReportOnly {
		d.Commands = diagnosis.DetachCommands(driver, u.Node, u.PersistentVolume)
		d.Actions = []string{fmt.Sprintf("Detach the volume from node ID %s in the storage system.", u.NodeID)}
		if d.Commands != nil {
			d.Actions = []string{
				fmt.Sprintf("Check that nothing on node %s uses the volume, then detach it with these commands: they let the hub attach it there, where the driver has it already, and detach it.", u.Node),
				fmt.Sprintf("Set drift.unexpected to detach for driver %s if the hub should detach such volumes.", driver),
			}
		}
		if u.LastError != "" { // drift.unexpected is detach already
			d.Actions, d.Detail = d.Actions[:1], "the hub does not detach it because "+u.LastError
		}
	}
	if u.Tries > 0 {
		d.Detail = diagnosis.Because(plural(u.Tries, "try", "tries in a row")+" to detach it failed", d.Detail)
	}
	return d
}

// publishedElsewhere says where else the driver lists the volume whose attach it refuses: the CSI spec has FailedPrecondition
// for a volume that is published to another node.
func (in DiagnosisInput) publishedElsewhere() (found []diagnosis.Diagnosis) {
	a := in.Attachment
	if a.Operation == Detach || a.Cause().Code != "FailedPrecondition" {
		return nil
	}
	for _, u := range in.Driver.Dangling {
		if u.VolumeHandle == a.VolumeHandle && u.Node != a.Node {
			d := u.Diagnose(a.Driver)
			d.Detail = cmp.Or(d.Detail, in.failed().Detail)
			found = append(found, d)
		}
	}
	return found
}

// addDangling adds the dangling volumes.
func (h *Health) addDangling(d Driver) {
	if d.DanglingCount == 0 {
		return
	}
	found := d.says(diagnosis.Dangling, plural(d.DanglingCount, "volume dangling", "volumes dangling, the oldest"), "attached without a VolumeAttachment",
		"Run csi-attach-hub explain driver/"+d.Name+" for where they are: the hub keeps trying to detach them.")
	for _, u := range d.Dangling {
		if found.Since = earliest(found.Since, u.Since); u.ReportOnly {
			found.Actions = []string{"Run csi-attach-hub explain driver/" + d.Name + " for where they are: those with commands the hub only reports.",
				"Set drift.unexpected to detach for the driver if the hub should detach them."}
			found.Commands = diagnosis.Commands([]string{"csi-attach-hub", "explain", "driver/" + d.Name})
		}
	}
	h.add(Attention, found)
}
