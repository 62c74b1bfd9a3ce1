package status

import (
	"cmp"
	"slices"
)

// view reads a Source for the API and the pages: in order, and with empty lists in place of nil,
// which would be null in JSON.
type view struct{ source Source }

// drivers returns all drivers by name.
func (v view) drivers() []Driver {
	drivers := orNone(v.source.Drivers())
	slices.SortFunc(drivers, func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
	for i := range drivers {
		drivers[i].Lanes = orNone(drivers[i].Lanes)
	}
	return drivers
}

// driver returns a driver, nil if there is none of the name.
func (v view) driver(name string) *Driver {
	for _, d := range v.drivers() {
		if d.Name == name {
			return &d
		}
	}
	return nil
}

// attachments returns the VolumeAttachments that the filter selects, in any order.
func (v view) attachments(f AttachmentFilter) []Attachment {
	return slices.DeleteFunc(v.source.Attachments(f), func(a Attachment) bool { return !f.Match(a) })
}

// overview returns the Overview with the replicas by identity.
func (v view) overview() Overview {
	o := v.source.Overview()
	o.Replicas = sortedReplicas(o.Replicas)
	return o
}

func sortedReplicas(all []Replica) []Replica {
	slices.SortFunc(all, func(a, b Replica) int { return cmp.Compare(a.Identity, b.Identity) })
	for i := range all {
		all[i].Drivers = orNone(all[i].Drivers)
		slices.Sort(all[i].Drivers)
	}
	return orNone(all)
}

// orNone returns an empty list for nil.
func orNone[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// sortAfter sorts VolumeAttachments by name and returns the index of the first name after a given
// one. Pages that begin after a name hold while VolumeAttachments come and go.
func sortAfter(all []Attachment, name string) int {
	slices.SortFunc(all, func(a, b Attachment) int { return cmp.Compare(a.Name, b.Name) })
	from, found := slices.BinarySearchFunc(all, name, func(a Attachment, name string) int { return cmp.Compare(a.Name, name) })
	if found {
		from++
	}
	return from
}
