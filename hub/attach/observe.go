package attach

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	// WouldFail: the hub would fail now, for the Reason. While the Agreement is Pending, that may
	// change.
	WouldFail bool
	// Reason says what differs, why the hub would fail and, while Pending, why the other
	// attacher failed last. It may be empty.
	Reason string
	// Target and SecretRef are the target and Secret of the hub's CSI call, empty if it makes none.
	Target    Target
	SecretRef *corev1.SecretReference
}

// Final reports whether the other attacher is done, so that the observation counts. Callers should
// keep a final observation: node and PersistentVolume may change while the volume stays attached.
func (o Observation) Final() bool { return o.Agreement != Pending }

// Observe compares a VolumeAttachment with the hub's decision. A detach stays Pending: it is done
// when the finalizer or the object is gone, and ObserveDetach judges it.
func (d Driver) Observe(f Inputs) Observation {
	va := f.VolumeAttachment
	switch op := d.RequiredOperation(va); {
	case op == Detaching && (va.DeletionTimestamp != nil || !va.Status.Attached):
		return d.compare(Detaching, f).pending(va.Status.DetachError)
	case va.DeletionTimestamp != nil:
		return Observation{Agreement: Pending} // detached before, or never attached
	case d.NoAttach && va.Status.Attached:
		// Kubernetes creates no such VolumeAttachments, and old ones are rare.
		o := Observation{Operation: op, Agreement: Differs, Reason: "attachRequired of the CSIDriver is false, the hub would not have attached it"}
		if op == Detaching {
			o.Reason += " and would detach it"
		}
		return o
	case d.NoAttach:
		return Observation{Agreement: Pending, Reason: "attachRequired of the CSIDriver is false, the hub would not attach it"}
	case va.Status.Attached:
		return d.compare(Attaching, asBeforeAttach(f))
	}
	return d.compare(Attaching, f).pending(va.Status.AttachError)
}

// ObserveDetach compares a detach that is done with the hub's decision. The inputs are the last ones
// in which the VolumeAttachment had the driver's finalizer; without it there was nothing to detach,
// and the observation is Pending.
func (d Driver) ObserveDetach(f Inputs) Observation {
	if !HasFinalizer(f.VolumeAttachment.Finalizers, Finalizer(d.Name)) {
		return Observation{Agreement: Pending}
	}
	return d.compare(Detaching, f)
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

// compare returns the observation of an operation that the other attacher has carried out.
func (d Driver) compare(op Operation, f Inputs) Observation {
	decide, differences := d.decideAttach, d.attachDifferences
	if op == Detaching {
		decide, differences = d.decideDetach, d.detachDifferences
	}
	plan, err := decide(f)
	if err != nil {
		return Observation{Operation: op, Agreement: WouldHaveFailed, WouldFail: true, Reason: Text(err.Error())}
	}
	o := Observation{Operation: op, Agreement: Agreed, Target: plan.Target, SecretRef: plan.SecretRef}
	if found := differences(f.VolumeAttachment, plan); len(found) > 0 {
		o.Agreement, o.Reason = Differs, Text(strings.Join(found, "; "))
	}
	return o
}

func (d Driver) detachDifferences(va *storagev1.VolumeAttachment, plan Plan) []string {
	if noted := NotedTarget(va).NodeID; noted != "" && plan.Unpublish != nil && noted != plan.Target.NodeID {
		return []string{different("node ID", noted, plan.Target.NodeID)}
	}
	return nil
}

func (d Driver) attachDifferences(va *storagev1.VolumeAttachment, plan Plan) (differences []string) {
	finalizer, noted := Finalizer(d.Name), NotedTarget(va)
	hasFinalizer := HasFinalizer(va.Finalizers, finalizer)
	switch {
	case plan.Publish == nil && hasFinalizer:
		return []string{fmt.Sprintf("finalizer %q is there, the hub would have added none: the driver has no PUBLISH_UNPUBLISH_VOLUME", finalizer)}
	case plan.Publish == nil:
		return nil
	case !hasFinalizer:
		differences = append(differences, fmt.Sprintf("finalizer %q is missing, the hub would have added it", finalizer))
	}
	switch noted.NodeID {
	case plan.Target.NodeID:
	case "":
		differences = append(differences, fmt.Sprintf("no node ID is noted, the hub would have used %q", plan.Target.NodeID))
	default:
		differences = append(differences, different("node ID", noted.NodeID, plan.Target.NodeID))
	}
	if noted.VolumeHandle != "" && noted.VolumeHandle != plan.Target.VolumeHandle {
		differences = append(differences, different("volume handle", noted.VolumeHandle, plan.Target.VolumeHandle))
	}
	return differences
}

func different(what, noted, own string) string {
	return fmt.Sprintf("%s is %q, the hub would have used %q", what, noted, own)
}

// pending returns the observation while the other attacher is not done. Differences do not count
// then, because they may pass. failure is the last failure of the other attacher, nil for none.
func (o Observation) pending(failure *storagev1.VolumeError) Observation {
	var reasons []string
	if o.WouldFail {
		reasons = append(reasons, "the hub would fail: "+o.Reason)
	}
	if failure != nil {
		reasons = append(reasons, "the other attacher failed: "+failure.Message)
	}
	o.Agreement, o.Reason = Pending, Text(strings.Join(reasons, "; "))
	return o
}
