package attach

import (
	"fmt"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Agreement is the result of comparing the hub's decision with what another attacher did, as the status has it.
type Agreement string

const (
	// Pending: the other attacher is not done, or has nothing to do. It is not counted.
	Pending Agreement = "pending"
	// Agreed: the hub would have done the same.
	Agreed Agreement = "agreed"
	// WouldHaveFailed: the other attacher succeeded, and the hub would have failed.
	WouldHaveFailed Agreement = "would_have_failed"
	// Differs: the hub would have done something else.
	Differs Agreement = "differs"
)

// Observation is what the hub would have done with one VolumeAttachment that another attacher
// serves. It holds no secrets and no publish context.
type Observation struct {
	Operation Operation
	Agreement Agreement
	Reason    string // what differs, or why the hub would fail
}

// Observe compares an attach with the hub's decision. It is Pending until the volume is attached, and when the
// VolumeAttachment is being deleted: ObserveDetach judges the detach when the object is gone. Callers should keep
// the result: node and PersistentVolume may change while the volume stays attached.
func (d Driver) Observe(f Inputs) Observation {
	va := f.VolumeAttachment
	switch {
	case va.DeletionTimestamp != nil || !va.Status.Attached:
		return Observation{Agreement: Pending}
	case d.NoAttach:
		// Kubernetes creates no such VolumeAttachments, and old ones are rare.
		o := Observation{Operation: d.RequiredOperation(va), Agreement: Differs, Reason: "attachRequired of the CSIDriver is false, the hub would not have attached it"}
		if o.Operation == Detaching {
			o.Reason += " and would detach it"
		}
		return o
	}
	plan, err := d.decideAttach(asBeforeAttach(f))
	return d.compare(va, Attaching, plan, err)
}

// ObserveDetach compares a detach that is done with the hub's decision. The inputs are the last ones
// in which the VolumeAttachment had the driver's finalizer; without it there was nothing to detach,
// and the observation is Pending.
func (d Driver) ObserveDetach(f Inputs) Observation {
	if !HasFinalizer(f.VolumeAttachment.Finalizers, Finalizer(d.Name)) {
		return Observation{Agreement: Pending}
	}
	plan, err := d.decideDetach(f)
	return d.compare(f.VolumeAttachment, Detaching, plan, err)
}

// asBeforeAttach returns the inputs as they were before the volume was attached, as far as that is
// known. A PersistentVolume that was deleted after the creation of the VolumeAttachment was not being
// deleted then.
func asBeforeAttach(f Inputs) Inputs {
	va := *f.VolumeAttachment
	va.Status = storagev1.VolumeAttachmentStatus{}
	if pv := f.PersistentVolume; pv != nil && pv.Deleted != nil && !pv.Deleted.Before(&va.CreationTimestamp) {
		living := *pv
		living.Deleted = nil
		f.PersistentVolume = &living
	}
	f.VolumeAttachment = &va
	return f
}

// compare compares the plan of an operation with what the other attacher has left in the VolumeAttachment.
func (d Driver) compare(va *storagev1.VolumeAttachment, op Operation, plan Plan, err error) Observation {
	if err != nil {
		return Observation{op, WouldHaveFailed, Text(err.Error())}
	}
	var found []string
	differs := func(format string, values ...any) { found = append(found, fmt.Sprintf(format, values...)) }
	finalizer, noted := Finalizer(d.Name), NotedTarget(va)
	guarded, called := HasFinalizer(va.Finalizers, finalizer), plan.Target != Target{}
	switch {
	case called && !guarded:
		differs("finalizer %q is missing, the hub would have added it", finalizer)
	case !called && guarded && op == Attaching:
		differs("finalizer %q is there, the hub would have added none: the driver has no PUBLISH_UNPUBLISH_VOLUME", finalizer)
	}
	switch {
	case !called || noted.NodeID == plan.Target.NodeID:
	case noted.NodeID != "":
		differs("node ID is %q, the hub would have used %q", noted.NodeID, plan.Target.NodeID)
	case op == Attaching:
		differs("no node ID is noted, the hub would have used %q", plan.Target.NodeID)
	}
	if called && noted.VolumeHandle != "" && noted.VolumeHandle != plan.Target.VolumeHandle {
		differs("volume handle is %q, the hub would have used %q", noted.VolumeHandle, plan.Target.VolumeHandle)
	}
	if len(found) > 0 {
		return Observation{op, Differs, Text(strings.Join(found, "; "))}
	}
	return Observation{Operation: op, Agreement: Agreed}
}

// ForeignWrite returns which client other than the hub last wrote the status between two states of a VolumeAttachment, and
// when, by its managedFields; "" if none did. Only attachers write the status. It cannot see a repetition within the same second.
func ForeignWrite(before, after *storagev1.VolumeAttachment) (manager string, last time.Time) {
	for _, e := range PruneManagedFields(after.ManagedFields) {
		known := slices.ContainsFunc(before.ManagedFields, func(b metav1.ManagedFieldsEntry) bool {
			return b.Manager == e.Manager && b.Operation == e.Operation && b.APIVersion == e.APIVersion && b.Subresource == e.Subresource && b.Time.Equal(e.Time)
		})
		if !known && !e.Time.Time.Before(last) {
			manager, last = e.Manager, e.Time.Time
		}
	}
	return manager, last
}

// PruneManagedFields returns the entries of managedFields that ForeignWrite reads, without their fields. It does not change
// the entries.
func PruneManagedFields(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var pruned []metav1.ManagedFieldsEntry
	for _, e := range entries {
		// The API server merges the oldest of more than ten entries into one without a subresource.
		if e.Subresource == "status" && e.Manager != FieldManager && e.Time != nil {
			e.FieldsType, e.FieldsV1 = "", nil
			pruned = append(pruned, e)
		}
	}
	return slices.Clip(pruned)
}
