package observe

import (
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// keptDisagreements is the number of latest disagreements that the status shows.
const keptDisagreements = 100

// Observer watches another attacher work for a driver, and compares. Its methods are safe for concurrent use, and do not block.
type Observer struct {
	Cluster *cache.Cluster
	// Decider returns the present inputs of the hub's decisions, and false while the driver has not
	// reported its capabilities yet. It must not block.
	Decider func() (attach.Driver, bool)
	Metrics *status.DriverMetrics

	mu          sync.Mutex
	attachments map[string]*attachment // that exist, by name; guarded by mu
	seen        status.Observed        // without Pending, the latest disagreement first; guarded by mu
}

// attachment is a VolumeAttachment that exists and has been compared.
type attachment struct {
	inputs attach.Inputs // with its last state that had the driver's finalizer, by which its detach is judged
	judged bool          // its attach was counted
}

// AttachmentChanged compares a VolumeAttachment that was added, where before is nil, has changed, or is gone, where now is nil.
func (o *Observer) AttachmentChanged(before, now *storagev1.VolumeAttachment) {
	if now != nil {
		o.Look(now.Name)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if a := o.attachments[before.Name]; a != nil && a.inputs.VolumeAttachment.UID == before.UID {
		o.end(a, before)
	}
}

// end ends the comparison of a VolumeAttachment that is gone, and judges its detach if its last state shows that it was being deleted.
// The caller holds mu.
func (o *Observer) end(a *attachment, last *storagev1.VolumeAttachment) {
	delete(o.attachments, last.Name)
	decider, _ := o.Decider()
	if last.DeletionTimestamp != nil && attach.HasFinalizer(a.inputs.VolumeAttachment.Finalizers, attach.Finalizer(decider.Name)) {
		differences, err := decider.Differences(attach.Detaching, a.inputs)
		o.count(last, attach.Detaching, differences, err)
	}
}

// Look compares a VolumeAttachment. It is also called when an object that it refers to has changed.
func (o *Observer) Look(name string) {
	if decider, known := o.Decider(); known { // else LookAtAll follows when the driver is connected
		o.compare(decider, name)
	}
}

// LookAtAll compares all VolumeAttachments of the driver. It is called when the driver's capabilities or
// attachRequired may have changed.
func (o *Observer) LookAtAll() {
	if decider, known := o.Decider(); known {
		for _, va := range o.Cluster.AttachmentsOfDriver(decider.Name) {
			o.compare(decider, va.Name)
		}
	}
}

// compare compares the VolumeAttachment that has a name, if there is one. It reads the cache under mu: an
// older state must not follow a newer one.
func (o *Observer) compare(decider attach.Driver, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	va, a, finalizer := o.Cluster.Attachment(name), o.attachments[name], attach.Finalizer(decider.Name)
	if va == nil {
		return // the event of its deletion follows
	}
	if a != nil && va.UID != a.inputs.VolumeAttachment.UID {
		o.end(a, a.inputs.VolumeAttachment)
		a = nil
	}
	inputs := o.Cluster.Inputs(va)
	if a == nil {
		a = &attachment{}
		if o.attachments == nil {
			o.attachments = map[string]*attachment{}
		}
		o.attachments[name] = a
	}
	if last := a.inputs.VolumeAttachment; last == nil || attach.HasFinalizer(va.Finalizers, finalizer) || !attach.HasFinalizer(last.Finalizers, finalizer) {
		a.inputs = inputs
	}
	// The first result counts: node and volume may change later.
	if a.judged || !va.Status.Attached || va.DeletionTimestamp != nil {
		return
	}
	differences, err := decider.Differences(attach.Attaching, inputs)
	isComplete := inputs.CSINode != nil && (inputs.PersistentVolume != nil || attach.VolumeName(va) == "") // else the caches may be late
	if a.judged = isComplete || err == nil; a.judged {
		o.count(va, attach.Attaching, differences, err)
	}
}

// count counts the result of a comparison, see attach.Driver.Differences. The caller holds mu.
func (o *Observer) count(va *storagev1.VolumeAttachment, op attach.Operation, differences string, err error) {
	agreement := status.Agreed
	switch {
	case err != nil:
		agreement, differences = status.WouldHaveFailed, err.Error()
		o.seen.WouldHaveFailed++
	case differences != "":
		agreement = status.Differs
		o.seen.Differs++
	default:
		o.seen.Agreed++
	}
	o.Metrics.Observed(agreement)
	if agreement != status.Agreed {
		all := slices.Insert(o.seen.Disagreements, 0, status.Disagreement{VolumeAttachment: va.Name, Node: va.Spec.NodeName, Agreement: agreement,
			Reason: op.String() + ": " + attach.Text(differences), Since: time.Now()})
		o.seen.Disagreements = all[:min(len(all), keptDisagreements)]
	}
}

// Report returns the counts and the latest disagreements.
func (o *Observer) Report() *status.Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	seen.Disagreements = slices.Clone(seen.Disagreements)
	for _, a := range o.attachments {
		if !a.judged {
			seen.Pending++
		}
	}
	return &seen
}
