package status

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// view reads a Source for the API and the pages: in order, and with empty lists in place of nil,
// which would be null in JSON.
type view struct{ source Source }

// drivers returns all drivers by name, with their health and who waits for them.
func (v view) drivers() []Driver {
	replicas := v.source.Overview().Replicas
	drivers := v.judged(replicas)
	for i := range drivers {
		v.addWaiters(&drivers[i], replicas)
	}
	return drivers
}

// mostAsked is how many VolumeAttachments of a driver are looked at to find who waits for it.
const mostAsked = 10 * MostWaiters

// addWaiters adds who waits for a driver that is not fine.
func (v view) addWaiters(d *Driver, replicas []Replica) {
	if work := d.Work(); d.Health.State == Fine || d.waiting()+work.Stuck == 0 && work.OldestCall.Since.IsZero() {
		return
	}
	d.Waiters = waiters(v.attachments(AttachmentFilter{Driver: d.Name, Oldest: mostAsked}))
	d.Health = HealthOfDriver(*d, replicas, time.Now())
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
			if len(names) == MostWaiters {
				return names
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// driver returns a driver with its checklist, nil if there is none of the name.
func (v view) driver(ctx context.Context, name string) *Driver {
	replicas := v.source.Overview().Replicas
	for _, d := range v.judged(replicas) {
		if d.Name == name {
			v.addWaiters(&d, replicas)
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

// overview returns the Overview with the replicas by identity.
func (v view) overview() Overview {
	o := v.source.Overview()
	o.Replicas = append([]Replica{}, o.Replicas...)
	slices.SortFunc(o.Replicas, func(a, b Replica) int { return cmp.Compare(a.Identity, b.Identity) })
	for i := range o.Replicas {
		o.Replicas[i].Drivers = append([]string{}, o.Replicas[i].Drivers...)
		slices.Sort(o.Replicas[i].Drivers)
	}
	return o
}
