package hub

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// check returns which rules a state of the world breaks.
func (m *volumeModel) check(w *exploredWorld) error {
	return errors.Join(checkCalls(w), checkStatuses(w), checkGuards(w))
}

// checkCalls: one call for a volume at a time, and for a multi-node volume one at each node (CSI spec, ControllerPublishVolume;
// design.md 3.3). The calls of a stopped process whose lease has run out are over: their deadlines have passed (lease.Term).
func checkCalls(w *exploredWorld) error {
	var calls []request
	for _, p := range w.replicas {
		for _, f := range p.flights {
			if f.isCall() && !p.replica.expired {
				calls = append(calls, f.request)
			}
		}
	}
	for i, a := range calls {
		for _, b := range calls[:i] {
			if a.target.VolumeHandle == b.target.VolumeHandle && (a.target == b.target || !isSharedHandle(w, a.target.VolumeHandle)) {
				return fmt.Errorf("two calls for one volume at a time: %v, %v", b, a)
			}
		}
	}
	return nil
}

func isSharedHandle(w *exploredWorld, handle string) bool {
	for _, o := range w.api.objects[volumes] {
		if pv := o.(*corev1.PersistentVolume); attach.VolumeHandle(pv) == handle {
			return attach.SurelyMultiNode(pv)
		}
	}
	return false
}

// checkStatuses: what says attached is attached, unless it is being detached. The volume of a VolumeAttachment that is being
// deleted counts as attached until its finalizer is gone (external-attacher issue 587).
func checkStatuses(w *exploredWorld) error {
	for _, va := range w.api.attachments() {
		if noted := attach.NotedTarget(va); va.Status.Attached && va.DeletionTimestamp == nil && !slices.Contains(w.driver.published, noted) {
			return fmt.Errorf("va %s says attached, and the driver does not have %v", va.Name, noted)
		}
	}
	return nil
}

// checkGuards: where the driver has a volume, a VolumeAttachment with the finalizer has it noted, and the PersistentVolume has
// the finalizer (core.md, PersistentVolume finalizers). That does not hold after a user has taken a finalizer away, and at a
// node ID that its node does not have any more (core.md, A new target while the old one is refused): then it is detached in
// the end, see reached.
func checkGuards(w *exploredWorld) error {
	if w.users.taint {
		return nil
	}
	for _, t := range w.driver.published {
		if !slices.ContainsFunc(w.api.attachments(), func(va *storagev1.VolumeAttachment) bool {
			return attach.NotedTarget(va) == t && attach.HasFinalizer(va.Finalizers, exploredFinalizer)
		}) {
			return fmt.Errorf("the driver has %v, and no VolumeAttachment with the finalizer has it noted", t)
		}
		if !slices.ContainsFunc(w.api.objects[volumes], func(o apiObject) bool {
			return attach.VolumeHandle(o.(*corev1.PersistentVolume)) == t.VolumeHandle && attach.HasFinalizer(o.GetFinalizers(), exploredFinalizer)
		}) {
			return fmt.Errorf("the driver has %v, and its PersistentVolume does not have the finalizer", t)
		}
	}
	return nil
}

// checkUnused: nothing is unpublished where it is in use, unless its VolumeAttachment was deleted (core.md, In use). Who uses a
// volume stops, and nobody begins, so what a replica has read is not older than it may be.
func checkUnused(w *exploredWorld, q request) error {
	if q.verb != verbUnpublish || q.target != w.users.used {
		return nil
	}
	va, ok := w.api.find(attachments, q.run).(*storagev1.VolumeAttachment)
	if !strings.HasPrefix(q.run, "unowned ") && (!ok || va.UID != q.seen || va.DeletionTimestamp != nil) {
		return nil
	}
	return fmt.Errorf("%v: the volume is in use there", q)
}

// checkNeed: no call is made without need: a publish that is recorded, or for a VolumeAttachment that is gone, and an
// unpublish whose success is recorded. A crash, and an answer that was lost, are before the record. A finalizer that a user
// strips and a node ID that changes make a call for what is recorded necessary.
func checkNeed(w *exploredWorld, q request) error {
	if !q.isCall() || w.users.taint {
		return nil
	}
	va, ok := w.api.find(attachments, q.run).(*storagev1.VolumeAttachment)
	if !ok {
		if strings.HasPrefix(q.run, "unowned ") {
			return nil
		}
		return fmt.Errorf("%v: the VolumeAttachment is gone", q)
	}
	switch recorded := va.Status.Attached && attach.NotedTarget(va) == q.target; {
	case q.verb == verbPublish && recorded && va.DeletionTimestamp == nil:
		return fmt.Errorf("%v: it is recorded as attached", q)
	case q.verb == verbUnpublish && !attach.HasFinalizer(va.Finalizers, exploredFinalizer):
		return fmt.Errorf("%v: it is recorded as detached", q)
	}
	return nil
}

// checkWrite looks at what a write of the hub changes: it must not be for an older object of the same name, and it
// must not take a finalizer away while the driver has the volume. A
// VolumeAttachment may go if its node has another node ID now and the driver has refused often enough to unpublish at the
// former one: that publication is unowned then (core.md, A new target while the old one is refused). Its PersistentVolume stays.
func (m *volumeModel) checkWrite(before *exploredWorld, q request, after *exploredWorld) (*exploredWorld, error) {
	had, has := before.api.find(q.resource, q.name), after.api.find(q.resource, q.name)
	if had != nil && before.api != after.api && q.resource == attachments && had.GetUID() > q.seen {
		return after, fmt.Errorf("%v changes the object with the uid %s, which the replica had not seen when it sent that", q, had.GetUID())
	}
	if had == nil || !attach.HasFinalizer(had.GetFinalizers(), exploredFinalizer) || has != nil && has.GetUID() == had.GetUID() && attach.HasFinalizer(has.GetFinalizers(), exploredFinalizer) {
		return after, nil
	}
	switch o := had.(type) {
	case *storagev1.VolumeAttachment:
		noted := attach.NotedTarget(o)
		owned := slices.ContainsFunc(after.api.attachments(), func(va *storagev1.VolumeAttachment) bool {
			return attach.NotedTarget(va) == noted && attach.HasFinalizer(va.Finalizers, exploredFinalizer)
		})
		former := before.api.nodeID(o.Spec.NodeName) != noted.NodeID
		if slices.Contains(before.driver.published, noted) && !owned && !former {
			return after, fmt.Errorf("%v takes the finalizer away while the driver has %v", q, noted)
		}
	case *corev1.PersistentVolume:
		for _, t := range before.driver.published {
			if t.VolumeHandle == attach.VolumeHandle(o) {
				return after, fmt.Errorf("%v takes the finalizer away while the driver has %v", q, t)
			}
		}
	}
	return after, nil
}

// reached reports whether all is as users want it, and at rest.
func (m *volumeModel) reached(w *exploredWorld) bool {
	if len(w.driver.late) > 0 || w.lease.holder < 0 {
		return false
	}
	for i, p := range w.replicas {
		if p.replica == nil || len(p.flights) > 0 || p.replica.leads != (w.lease.holder == i && !w.lease.expired) {
			return false
		}
		for r := range resources {
			if len(p.events[r]) > 0 || p.lists[r] {
				return false
			}
		}
		if p.replica.busy && !m.waits(w) {
			return false
		}
	}
	var wanted []attach.Target
	for _, va := range w.api.attachments() {
		if m.cannotAttach(w, va) || !w.api.attachRequired() && attach.NotedTarget(va) == w.users.used {
			continue
		}
		if !va.Status.Attached || va.DeletionTimestamp != nil || !attach.HasFinalizer(va.Finalizers, exploredFinalizer) {
			return false
		}
		wanted = append(wanted, attach.NotedTarget(va))
	}
	for _, t := range w.driver.published {
		if !slices.Contains(wanted, t) && t != w.users.used {
			return false
		}
	}
	for _, o := range w.api.objects[volumes] { // a PersistentVolume that is being deleted goes when no VolumeAttachment names it
		if o.GetDeletionTimestamp() != nil && !slices.ContainsFunc(w.api.attachments(), func(va *storagev1.VolumeAttachment) bool { return attach.VolumeName(va) == o.GetName() }) {
			return false
		}
	}
	return true
}

// cannotAttach reports whether a VolumeAttachment cannot be attached whatever the hub does: its PersistentVolume is being
// deleted or gone, or the single-node volume is attached for another VolumeAttachment.
func (m *volumeModel) cannotAttach(w *exploredWorld, va *storagev1.VolumeAttachment) bool {
	if va.Status.Attached || va.DeletionTimestamp != nil {
		return false
	}
	if !w.api.attachRequired() {
		return !attach.HasFinalizer(va.Finalizers, exploredFinalizer)
	}
	pv := w.api.volume(attach.VolumeName(va))
	if pv == nil || pv.DeletionTimestamp != nil {
		return true
	}
	return !attach.SurelyMultiNode(pv) && slices.ContainsFunc(w.api.attachments(), func(other *storagev1.VolumeAttachment) bool {
		return other.Name != va.Name && attach.VolumeName(other) == pv.Name && other.Status.Attached && other.DeletionTimestamp == nil
	})
}

// waits reports whether an entry has to stay, because a VolumeAttachment cannot be attached, or a volume is in use.
func (m *volumeModel) waits(w *exploredWorld) bool {
	return w.users.used != (attach.Target{}) || slices.ContainsFunc(w.api.attachments(), func(va *storagev1.VolumeAttachment) bool { return m.cannotAttach(w, va) })
}
