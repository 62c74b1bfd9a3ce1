package status

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// view reads a Source for the API and the pages: in order, and with empty lists in place of nil,
// which would be null in JSON.
type view struct{ source Source }

// mostAsked is how many VolumeAttachments of a driver are looked at to find who waits for it.
const mostAsked = 10 * MostWaiters

// drivers returns all drivers by name, with their health, and with who waits for those that are not fine.
func (v view) drivers() []Driver {
	replicas := v.source.Overview().Replicas
	drivers := v.judged(replicas)
	for i := range drivers {
		d := &drivers[i]
		if work := d.Work(); d.Health.State != Fine && (d.waiting()+work.Stuck > 0 || !work.OldestCall.Since.IsZero()) {
			d.Waiters = waiters(v.attachments(AttachmentFilter{Driver: d.Name, Oldest: mostAsked}))
			d.Health = HealthOfDriver(*d, replicas, time.Now())
		}
	}
	return drivers
}

// judged is drivers without who waits for them. It looks at no VolumeAttachment.
func (v view) judged(replicas []Replica) []Driver {
	drivers := append([]Driver{}, v.source.Drivers()...)
	slices.SortFunc(drivers, func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
	now := time.Now()
	for i := range drivers {
		drivers[i].Lanes = append([]Lane{}, drivers[i].Lanes...)
		drivers[i].Health = HealthOfDriver(drivers[i], replicas, now)
	}
	return drivers
}

// waiters returns who waits longest for one driver: Pods, or claims whose Pods are not known. A volume whose call
// is just in flight does not wait.
func waiters(all []Attachment) []string {
	all = slices.DeleteFunc(all, func(a Attachment) bool {
		return !open(a) || (a.State == Attaching || a.State == Detaching) && !a.Health.Needs()
	})
	WorstFirst(all)
	var names []string
	for _, a := range all {
		for _, name := range a.neededBy() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names[:min(len(names), MostWaiters)]
}

// driver returns a driver with its checklist, nil if there is none of the name.
func (v view) driver(ctx context.Context, name string) *Driver {
	for _, d := range v.drivers() {
		if d.Name == name {
			d.Checklist = v.source.Checklist(ctx, name)
			return &d
		}
	}
	return nil
}

// attachments returns the VolumeAttachments that the filter selects, in any order, with the state of their
// health. addReasons adds its reasons.
func (v view) attachments(f AttachmentFilter) []Attachment {
	all, now := v.source.Attachments(f), time.Now()
	for i := range all {
		all[i].Health.State, all[i].Health.Since = all[i].healthOf(now)
	}
	return slices.DeleteFunc(all, func(a Attachment) bool {
		return !f.Match(a) || len(f.Health) > 0 && !slices.Contains(f.Health, a.Health.State)
	})
}

// addReasons adds the reasons of the health of VolumeAttachments.
func (v view) addReasons(all []Attachment) {
	if !slices.ContainsFunc(all, func(a Attachment) bool { return a.Health.State != Fine }) {
		return
	}
	input := v.inputs()
	for i := range all {
		all[i].Health = HealthOfAttachment(input(all[i]))
	}
}

// inputs returns a function that adds to a VolumeAttachment what its diagnosis needs.
func (v view) inputs() func(Attachment) DiagnosisInput {
	overview, now, drivers := v.source.Overview(), time.Now(), map[string]*Driver{}
	for _, d := range v.judged(overview.Replicas) {
		drivers[d.Name] = &d
	}
	return func(a Attachment) DiagnosisInput {
		return DiagnosisInput{Attachment: a, Driver: drivers[a.Driver], Replicas: overview.Replicas, Conflicts: overview.Config.Conflicts, Now: now}
	}
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
