package status

import (
	"cmp"
	"math"
	"slices"
	"time"
)

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
	return a.State != Attached && a.State != Idle && (a.State != Unclaimed || a.Operation != "")
}

// Groups returns VolumeAttachments as groups that are in the same state for the same reason, in the order of their first
// ones. Their health has its reasons.
func Groups(all []Attachment) [][]Attachment {
	var groups [][]Attachment
	index := map[string]int{} // in groups, by reason
	for _, a := range all {
		key := a.troubleKey()
		at, known := index[key]
		if !known {
			at = len(groups)
			index[key], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], a)
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
