package safety

import (
	"errors"
	"slices"
)

// World is what is so at one moment, or was so in the time of a write.
type World struct {
	Attachments []Attachment
	Volumes     []Volume
	Published   []Place           // where a driver may have a volume
	Has         func(Place) Known // whether it has it; nil: Published is certain
}

func (w World) has(p Place) Known {
	if w.Has == nil {
		return Surely(slices.Contains(w.Published, p))
	}
	return w.Has(p)
}

// Guards reports whether a VolumeAttachment with the finalizer has a place noted.
func (w World) Guards(p Place) bool {
	return slices.ContainsFunc(w.Attachments, func(c Attachment) bool { return c.Guarded && c.Noted == p })
}

// Statuses returns whether what says attached is attached. The volume of a VolumeAttachment that is being deleted counts as
// attached until its finalizer is gone (external-attacher issue 587).
func (w World) Statuses() error {
	var errs []error
	for _, c := range w.Attachments {
		if c.Attached && !c.Deleting && w.has(c.Noted) == No {
			errs = append(errs, AttachedTrue.broken(c.Volume, "%s says attached, and the driver does not have %v", c.Name, c.Noted))
		}
	}
	return errors.Join(errs...)
}

// Guarded returns whether finalizers stand for all that is attached.
func (w World) Guarded() error {
	var errs []error
	for _, p := range w.Published {
		if w.has(p) == Yes && !w.Guards(p) {
			errs = append(errs, Finalizer.broken(p.Volume, "the driver has %v, and no VolumeAttachment with the finalizer has it noted", p))
		}
	}
	return errors.Join(errs...)
}

// VolumesGuarded returns whether finalizers of PersistentVolumes stand for all that is attached.
func (w World) VolumesGuarded() error {
	var errs []error
	for _, p := range w.Published {
		if w.has(p) == Yes && !slices.ContainsFunc(w.Volumes, func(v Volume) bool { return v.Guarded && v.Place == Place{p.Driver, p.Volume, ""} }) {
			errs = append(errs, VolumeFinalizer.broken(p.Volume, "the driver has %v, and no PersistentVolume with the finalizer stands for it", p))
		}
	}
	return errors.Join(errs...)
}

// Wrote checks what a hub has made of a VolumeAttachment. The VolumeAttachments are those after the write.
func (w World) Wrote(before, after Attachment) error {
	var errs []error
	if after.Attached && !before.Attached && w.has(after.Noted) == No {
		errs = append(errs, AttachedTrue.broken(after.Volume, "reports %s as attached, and the driver does not have %v", after.Name, after.Noted))
	}
	if before.Attached && !after.Attached && w.has(before.Noted) == Yes {
		errs = append(errs, DetachedTrue.broken(after.Volume, "reports %s as detached, while the driver has %v", after.Name, before.Noted))
	}
	if before.Guarded && !after.Guarded && w.has(before.Noted) == Yes && !w.Guards(before.Noted) {
		errs = append(errs, Finalizer.broken(after.Volume, "removes the finalizer of %s, while the driver has %v", after.Name, before.Noted))
	}
	return errors.Join(errs...)
}

// WroteVolume checks what a hub has made of a PersistentVolume.
func (w World) WroteVolume(before, after Volume) error {
	if !before.Guarded || after.Guarded {
		return nil
	}
	var errs []error
	for _, p := range w.Published {
		if (Place{p.Driver, p.Volume, ""}) == before.Place && w.has(p) == Yes {
			errs = append(errs, VolumeFinalizer.broken(before.Name, "removes the finalizer of PersistentVolume %s, while the driver has %v", before.Name, p))
		}
	}
	for _, c := range w.Attachments {
		if c.Volume == before.Name && (c.Guarded || c.Attached) {
			errs = append(errs, VolumeFinalizer.broken(before.Name, "removes the finalizer of PersistentVolume %s, while VolumeAttachment %s has its volume", before.Name, c.Name))
		}
	}
	return errors.Join(errs...)
}

// Same checks the object that a write has changed: its sender has seen that one.
func Same(name, seen, uid string) error {
	if uid != seen {
		return SameObject.broken("", "a write changes %s with the uid %s, and its sender had seen that with the uid %s", name, uid, seen)
	}
	return nil
}

// Want is what a user asks for.
type Want struct {
	UID string // of the VolumeAttachment; empty: any
	At  Place
}

// Rest is a world in which nothing moves any more.
type Rest struct {
	World
	Running []Call
	Wants   map[string]Want // by the name of the VolumeAttachment; nil: whatever is there
	Keeps   []string        // PersistentVolumes; nil: whatever nobody deletes
	// Waits says whether a VolumeAttachment may wait, MayStay whether a driver may have a volume that nobody asks for.
	Waits   func(Attachment) bool
	MayStay func(Place) bool
}

// Settled returns what is not as users ask for it.
func (r Rest) Settled() (errs []error) {
	find := func(rule Rule, about, format string, args ...any) {
		errs = append(errs, rule.broken(about, format, args...))
	}
	owned, there := map[Place]bool{}, map[string]bool{}
	for _, c := range r.Attachments {
		want, ok := r.Wants[c.Name]
		there[c.Name] = ok
		switch {
		case r.Wants != nil && (!ok || want.UID != "" && want.UID != c.UID):
			there[c.Name] = false
			find(NothingLeft, c.Volume, "VolumeAttachment %s is there, though nobody asks for it, guarded %t", c.Name, c.Guarded)
		case c.Deleting:
			find(NothingLeft, c.Volume, "VolumeAttachment %s is still being deleted: %s", c.Name, c.Error)
		case r.Waits != nil && r.Waits(c):
		case !c.Attached:
			find(Fulfilled, c.Volume, "VolumeAttachment %s is not attached: %s", c.Name, c.Error)
		case c.Error != "":
			find(Fulfilled, c.Volume, "VolumeAttachment %s is attached and has an error: %s", c.Name, c.Error)
		case !c.Guarded:
			find(Fulfilled, c.Volume, "VolumeAttachment %s is attached and has no finalizer", c.Name)
		case r.Wants == nil:
			owned[c.Noted] = true
		}
	}
	for name, want := range r.Wants {
		owned[want.At] = true
		if !there[name] {
			find(Fulfilled, want.At.Volume, "VolumeAttachment %s is asked for and is not there", name)
		}
		if r.has(want.At) == No {
			find(Fulfilled, want.At.Volume, "%s is asked for at %s, and the driver does not have it there", want.At.Volume, want.At.Node)
		}
	}
	for _, p := range r.Published {
		if !owned[p] && r.has(p) == Yes && (r.MayStay == nil || !r.MayStay(p)) {
			find(NothingLeft, p.Volume, "%s is attached to %s, and nobody asks for that", p.Volume, p.Node)
		}
	}
	for _, c := range r.Running {
		find(NothingLeft, c.Volume, "%v goes on", c)
	}
	return append(errs, r.settledVolumes()...)
}

func (r Rest) settledVolumes() (errs []error) {
	var there []string
	for _, v := range r.Volumes {
		there = append(there, v.Name)
		named := r.Keeps == nil && slices.ContainsFunc(r.Attachments, func(c Attachment) bool { return c.Volume == v.Name })
		if v.Deleting && !named || r.Keeps != nil && !slices.Contains(r.Keeps, v.Name) {
			errs = append(errs, NothingLeft.broken(v.Name, "PersistentVolume %s should be gone, guarded %t", v.Name, v.Guarded))
		}
	}
	for _, name := range r.Keeps {
		if !slices.Contains(there, name) {
			errs = append(errs, Fulfilled.broken(name, "PersistentVolume %s is not there", name))
		}
	}
	return errs
}
