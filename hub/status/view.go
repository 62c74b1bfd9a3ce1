package status

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// view is what a Source says at one moment, with the health of all of it.
type view struct {
	Overview
	Now     time.Time
	drivers []Driver // by name
	source  Source
}

// look asks a Source for everything but VolumeAttachments.
func look(source Source) view {
	v := view{source.Overview(), time.Now(), append([]Driver{}, source.Drivers()...), source} // not nil: that is null in JSON
	slices.SortFunc(v.drivers, func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
	for i := range v.drivers {
		d := &v.drivers[i]
		d.Lanes = append([]Lane{}, d.Lanes...)
		d.Health = HealthOfDriver(*d, v.Replicas, v.Now)
	}
	return v
}

// driver returns a driver, nil if there is none of the name.
func (v view) driver(name string) *Driver {
	i, found := slices.BinarySearchFunc(v.drivers, name, func(d Driver, name string) int { return cmp.Compare(d.Name, name) })
	if !found {
		return nil
	}
	return &v.drivers[i]
}

// attachments returns the VolumeAttachments that the filter selects, in any order, with their health.
func (v view) attachments(f AttachmentFilter) []Attachment {
	all := slices.DeleteFunc(v.source.Attachments(f), func(a Attachment) bool { return !f.Match(a) })
	for i := range all {
		all[i].Health = HealthOfAttachment(v.input(all[i]))
	}
	return slices.DeleteFunc(all, func(a Attachment) bool { return len(f.Health) > 0 && !slices.Contains(f.Health, a.Health.State) })
}

// input returns what the diagnosis of a VolumeAttachment needs.
func (v view) input(a Attachment) DiagnosisInput {
	return DiagnosisInput{Attachment: a, Driver: v.driver(a.Driver), Replicas: v.Replicas, Conflicts: v.Config.Conflicts, Now: v.Now}
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
