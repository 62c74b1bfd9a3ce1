package status

import (
	"cmp"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// WaitKind is what a VolumeAttachment waits for.
type WaitKind string

const (
	// WaitForDetach: the volume is detached from another node first: Node, or only
	// VolumeAttachment where the object is gone from the cache.
	WaitForDetach WaitKind = "detach"
	// WaitForDanglingDetach: the volume is detached first from NodeID, where it is dangling.
	WaitForDanglingDetach WaitKind = "danglingDetach"
	// WaitForVolume: other work on the same volume ends first.
	WaitForVolume WaitKind = "volume"
	// WaitForNode: other calls for the same node end first.
	WaitForNode WaitKind = "node"
	// WaitForCapacity: Node is full. The attach goes on when a volume is detached from it, or its CSINode changes.
	WaitForCapacity WaitKind = "capacity"
	// WaitForWorker: all workers of the driver that it may have are busy.
	WaitForWorker WaitKind = "worker"
	// WaitForDriver: nothing is done for the driver now: DriverState and Reason say why.
	WaitForDriver WaitKind = "driver"
	// WaitForConfiguration: no driver of this name is configured in this hub.
	WaitForConfiguration WaitKind = "configuration"
)

// Wait is what a VolumeAttachment waits for, for programs. It is zero if there is nothing. In
// JSON, what does not belong to its Kind is left out.
type Wait struct {
	Kind             WaitKind `json:"kind,omitempty"`
	Node             string   `json:"node,omitempty"`             // WaitForDetach: where the volume is; may be empty. WaitForCapacity: the full node
	Limit            int      `json:"limit,omitempty"`            // WaitForCapacity: allocatable.count of the CSINode, 0 if it is not known
	Position         int      `json:"position,omitempty"`         // WaitForCapacity: in the line of the node, from 1
	NodeID           string   `json:"nodeID,omitempty"`           // WaitForDanglingDetach: where the volume is dangling
	VolumeAttachment string   `json:"volumeAttachment,omitempty"` // WaitForDetach: the one that is detached first
	DriverState      string   `json:"driverState,omitempty"`      // WaitForDriver: as in Driver.State
	Reason           string   `json:"reason,omitempty"`           // WaitForDriver: as in Driver.Reason
}

// String returns the wait as the end of a sentence, "waits for a worker of the driver" or "waits: the driver is Lost:
// refused"; "" if there is none. It may repeat a driver's text: hostile.
func (w Wait) String() string {
	switch w.Kind {
	case "":
		return ""
	case WaitForDriver:
		// A driver is Ready in mode observe.
		return "waits: the driver is " + diagnosis.Clause(strings.TrimPrefix(either(w.DriverState == StateWaitingForLease, "waiting for its lease", w.DriverState)+": "+w.Reason, StateReady+": "))
	case WaitForConfiguration:
		return "waits: no driver of this name is configured here"
	case WaitForDetach:
		if w.Node == "" {
			return "waits for the detach by " + w.VolumeAttachment
		}
	}
	return "waits for " + cmp.Or(map[WaitKind]string{
		WaitForDetach:         "the detach from node " + w.Node,
		WaitForDanglingDetach: "the detach from node ID " + w.NodeID + ", where the volume is dangling",
		WaitForVolume:         "other work on the same volume",
		WaitForNode:           "other calls for the same node",
		WaitForCapacity:       "a place on node " + w.Node + ", which is full",
		WaitForWorker:         "a worker of the driver",
	}[w.Kind], string(w.Kind))
}
