package attach

import (
	"fmt"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const hubAttachesNone = "attachRequired of the CSIDriver is false, the hub would not have attached it"

// Differences compares an attach or a detach that another attacher has carried out with the hub's decision, and returns what the hub
// would have done otherwise, "" for nothing. The error says why the hub would have failed. Neither has a secret or a publish context.
// The inputs of a detach are the last ones in which the VolumeAttachment had the driver's finalizer: without it there was nothing to
// detach. Callers should keep the result: node and PersistentVolume may change while the volume stays attached.
func (d Driver) Differences(op Operation, f Inputs) (string, error) {
	va := f.VolumeAttachment
	var plan Plan
	var err error
	switch {
	case op == Detaching:
		plan, err = d.decideDetach(f)
	case !d.NoAttach:
		plan, err = d.decideAttach(asBeforeAttach(f))
	case d.RequiredOperation(va) == Detaching: // Kubernetes creates no such VolumeAttachments, and old ones are rare
		return hubAttachesNone + " and would detach it", nil
	default:
		return hubAttachesNone, nil
	}
	if err != nil {
		return "", err
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
	return strings.Join(found, "; "), nil
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

// ConflictingWriter returns which client other than the hub last wrote the status between two states of a VolumeAttachment, and
// when, by its managedFields; "" if none did. Only attachers write the status. It cannot see a repetition within the same second.
func ConflictingWriter(before, after *storagev1.VolumeAttachment) (manager string, last time.Time) {
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

// PruneManagedFields returns the entries of managedFields that ConflictingWriter reads, without their fields. It does not change
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
