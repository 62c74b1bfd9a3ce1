package status

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Attachment is the state of one VolumeAttachment at one moment. JSON omits what is empty or
// unknown, except Name, Driver, Node, State and Tries.
type Attachment struct {
	Name             string `json:"name"`
	Driver           string `json:"driver"` // spec.attacher
	Node             string `json:"node"`
	PersistentVolume string `json:"persistentVolume,omitempty"`
	VolumeHandle     string `json:"volumeHandle,omitempty"`
	// Claim is the PersistentVolumeClaim that the PersistentVolume is bound to, as "namespace/name".
	Claim string `json:"claim,omitempty"`
	// Pods are Pods on the node that use the claim, as "namespace/name". The commands fill them in, with the rights of
	// their user; the hub does not know them.
	Pods          []string        `json:"pods,omitempty"`
	Health        Health          `json:"health,omitzero"` // set by this package, not by the Source
	State         AttachmentState `json:"state"`
	Operation     Operation       `json:"operation,omitempty"` // that is due: Attach, Detach, Drift, or empty
	Since         time.Time       `json:"since,omitzero"`      // when the operation became due, or the state began
	Call          Call            `json:"call,omitzero"`       // in flight for it; zero if there is none
	Tries         int             `json:"tries"`               // failed in a row
	NextTry       time.Time       `json:"nextTry,omitzero"`
	LastError     string          `json:"lastError,omitempty"` // may be a driver's own text: hostile
	LastCause     diagnosis.Cause `json:"lastCause,omitzero"`  // of LastError, for programs; zero if not known
	LastErrorTime time.Time       `json:"lastErrorTime,omitzero"`
	Waiting       Wait            `json:"waiting,omitzero"` // what it waits for
	// Fault is what is wrong with its objects although no operation is due; zero for nothing.
	Fault diagnosis.Diagnosis `json:"fault,omitzero"`
}

// AttachmentState is the state of a VolumeAttachment as the hub sees it.
type AttachmentState string

const (
	Attaching AttachmentState = "attaching" // a worker has it, for the first time
	Attached  AttachmentState = "attached"
	Detaching AttachmentState = "detaching" // likewise
	Waiting   AttachmentState = "waiting"   // the operation has not begun; Attachment.Waiting says why
	Failing   AttachmentState = "failing"   // the last try failed, and the next one runs, or comes at NextTry
	Stuck     AttachmentState = "stuck"     // without success for longer than stuckAfter; it is tried on
	Unserved  AttachmentState = "unserved"  // its driver is not served here
	Idle      AttachmentState = "idle"      // no operation is due, and it is not attached
)

// AttachmentStates are all states.
var AttachmentStates = []AttachmentState{Attaching, Attached, Detaching, Waiting, Failing, Stuck, Unserved, Idle}

// Doing returns the state with the operation that is due: "stuck detach", "failing attach".
func (a Attachment) Doing() string {
	if a.State == Attaching || a.State == Detaching {
		return string(a.State)
	}
	return strings.TrimSpace(string(a.State) + " " + string(a.Operation))
}

// AttachmentFilter selects VolumeAttachments. An empty field selects all.
type AttachmentFilter struct {
	Driver string
	Node   string
	Name   string
	States []AttachmentState
	Health []HealthState
}

// Match reports whether the filter selects a VolumeAttachment, without regard to its health.
func (f AttachmentFilter) Match(a Attachment) bool {
	return (f.Driver == "" || f.Driver == a.Driver) &&
		(f.Node == "" || f.Node == a.Node) &&
		(f.Name == "" || f.Name == a.Name) &&
		(len(f.States) == 0 || slices.Contains(f.States, a.State))
}

// WorstFirst sorts VolumeAttachments as all lists of the hub have them: the worst health first, then what is due before
// what is done, then the oldest, then by name.
func WorstFirst(all []Attachment) {
	place := func(a Attachment) (rank int, since int64) {
		rank = 2 * slices.Index(HealthStates, a.Health.State)
		if !open(a) {
			return rank + 1, 0
		}
		return rank, unixOrLast(a.Since)
	}
	slices.SortFunc(all, func(a, b Attachment) int {
		rankA, sinceA := place(a)
		rankB, sinceB := place(b)
		return cmp.Or(cmp.Compare(rankA, rankB), cmp.Compare(sinceA, sinceB), cmp.Compare(a.Name, b.Name))
	})
}

// unixOrLast returns a time as a number. A time that is not known is after all others.
func unixOrLast(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixNano()
}

// open reports whether an operation is due for a VolumeAttachment.
func open(a Attachment) bool {
	return a.State != Attached && a.State != Idle && (a.State != Unserved || a.Operation != "")
}

// Groups returns VolumeAttachments as groups that are in the same state for the same reason, in the order of their first
// ones. Their health has its reasons.
func Groups(all []Attachment) [][]Attachment {
	var groups [][]Attachment
	index := map[string]int{} // in groups, by reason
	for _, a := range all {
		key := a.troubleKey()
		if _, known := index[key]; !known {
			index[key], groups = len(groups), append(groups, nil)
		}
		groups[index[key]] = append(groups[index[key]], a)
	}
	return groups
}

// otherNodes returns how many nodes but that of the first the VolumeAttachments of a group are for.
func otherNodes(group []Attachment) int {
	nodes := map[string]bool{}
	for _, a := range group {
		nodes[a.Node] = true
	}
	return len(nodes) - 1
}

// Title returns how people know the volume: its claim, or else the best name that is known.
func (a Attachment) Title() string {
	return cmp.Or(a.Claim, a.PersistentVolume, a.VolumeHandle, a.Name)
}
