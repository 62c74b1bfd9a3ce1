package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

func placeOf(t attach.Target) safety.Place {
	return safety.Place{Driver: exploredDriver, Volume: t.VolumeHandle, Node: t.NodeID}
}

func asAttachment(va *storagev1.VolumeAttachment) safety.Attachment {
	return safety.AttachmentOf(va, exploredFinalizer)
}

// call returns a request that is a call as the rules look at it.
func (w *exploredWorld) call(q request) safety.Call {
	method := safety.Publish
	if q.verb == verbUnpublish {
		method = safety.Unpublish
	}
	return safety.Call{Method: method, Place: placeOf(q.target), Shared: safety.Surely(isSharedHandle(w, q.target.VolumeHandle))}
}

// seen is the state as the rules look at it.
func (w *exploredWorld) seen() safety.World {
	var s safety.World
	for _, va := range w.api.attachments() {
		s.Attachments = append(s.Attachments, asAttachment(va))
	}
	for _, o := range w.api.objects[volumes] {
		s.Volumes = append(s.Volumes, safety.VolumeOf(o.(*corev1.PersistentVolume), exploredFinalizer))
	}
	for _, t := range w.driver.published {
		s.Published = append(s.Published, placeOf(t))
	}
	return s
}

// check returns which rules a state of the world breaks. Finalizers do not stand for all that is attached after a user has
// taken one away, and at a node ID that its node does not have any more (hub/volume/doc.go:
// its publication there is dangling): then it is detached in the end, see reached.
func (m *volumeModel) check(w *exploredWorld) error {
	seen := w.seen()
	err := errors.Join(checkCalls(w), seen.Statuses())
	if !w.users.taint {
		err = errors.Join(err, seen.Guarded(), seen.VolumesGuarded())
	}
	return err
}

// checkCalls checks the calls in flight. Those of a stopped process whose lease has run out are over: their deadlines have
// passed (lease.Term).
func checkCalls(w *exploredWorld) error {
	var calls []safety.Call
	for _, p := range w.replicas {
		for _, f := range p.flights {
			if f.isCall() && !p.replica.expired {
				c := w.call(f.request)
				of := slices.DeleteFunc(slices.Clone(calls), func(o safety.Call) bool { return o.Volume != c.Volume })
				if err := safety.One(c, of); err != nil {
					return err
				}
				calls = append(calls, c)
			}
		}
	}
	return nil
}

func isSharedHandle(w *exploredWorld, handle string) bool {
	for _, o := range w.api.objects[volumes] {
		if v := attach.VolumeOf(o.(*corev1.PersistentVolume)); v.Handle == handle {
			return v.Nodes == attach.MultiNode
		}
	}
	return false
}

// checkRequest looks at a request of a replica that leaves it.
func (w *exploredWorld) checkRequest(i int, q request) error {
	if !q.isRead() {
		if err := safety.Holds(nameOfReplica(i), nameOfReplica(w.lease.holder), q.String()); err != nil {
			return err
		}
	}
	if !q.isCall() {
		return nil
	}
	c, seen := w.call(q), w.seen()
	va, found := w.api.find(attachments, q.run).(*storagev1.VolumeAttachment)
	dangling := strings.HasPrefix(q.run, "dangling ")
	// Who uses a volume stops, and nobody begins, so what a replica has read is not older than it may be.
	deleted := !dangling && (!found || va.UID != q.seen || va.DeletionTimestamp != nil)
	err := cmp.Or(safety.Detach(c, seen.Attachments), safety.Use(c, q.target == w.users.used, deleted))
	if err != nil || dangling || w.users.taint {
		return err // a finalizer that a user strips and a node ID that changes make a call for what is recorded necessary
	}
	// A crash, and an answer that was lost, are before the record.
	if !found {
		return safety.Need(c, nil)
	}
	return safety.Need(c, new(asAttachment(va)))
}

// checkWrite looks at what a write of the hub changes. A VolumeAttachment may go if its node has another node ID now and the
// driver has refused often enough to unpublish at the former one: that publication is dangling then. Its PersistentVolume
// stays. Once no attach was required, the status says so before the detach. hub/volume/doc.go has both rules.
func (m *volumeModel) checkWrite(before *exploredWorld, q request, after *exploredWorld) (*exploredWorld, error) {
	had, has := before.api.find(q.resource, q.name), after.api.find(q.resource, q.name)
	if had == nil || before.api == after.api {
		return after, nil
	}
	gone := has == nil || has.GetUID() != had.GetUID()
	seen := before.seen()
	seen.Attachments = after.seen().Attachments
	switch o := had.(type) {
	case *storagev1.VolumeAttachment:
		was := asAttachment(o)
		is := safety.Attachment{Name: was.Name, Volume: was.Volume, Attached: was.Attached}
		if !gone {
			is = asAttachment(has.(*storagev1.VolumeAttachment))
		}
		if before.api.nodeID(o.Spec.NodeName) != was.Noted.Node {
			was.Guarded = false
		}
		if m.Users[userChangesRequired] > 0 {
			is.Attached = is.Attached || was.Attached
		}
		return after, cmp.Or(safety.Same(was.Name, string(q.seen), was.UID), seen.Wrote(was, is))
	case *corev1.PersistentVolume:
		is := safety.Volume{}
		if !gone {
			is = safety.VolumeOf(has.(*corev1.PersistentVolume), exploredFinalizer)
		}
		return after, seen.WroteVolume(safety.VolumeOf(o, exploredFinalizer), is)
	}
	return after, fmt.Errorf("%v writes %T", q, had)
}

// reached reports whether all is as users want it, and at rest.
func (m *volumeModel) reached(w *exploredWorld) bool {
	if len(w.driver.late) > 0 || w.lease.holder < 0 {
		return false
	}
	waits := w.users.used != (attach.Target{})
	for _, va := range w.api.attachments() {
		waits = waits || m.cannotAttach(w, va)
	}
	for i, p := range w.replicas {
		if p.replica == nil || len(p.flights) > 0 || p.replica.leads != (w.lease.holder == i && !w.lease.expired) || p.replica.busy && !waits {
			return false
		}
		for r := range resources {
			if len(p.events[r]) > 0 || p.lists[r] {
				return false
			}
		}
	}
	used := placeOf(w.users.used)
	rest := safety.Rest{World: w.seen(), MayStay: func(p safety.Place) bool { return p == used }, Waits: func(c safety.Attachment) bool {
		va := w.api.find(attachments, c.Name).(*storagev1.VolumeAttachment)
		return m.cannotAttach(w, va) || !w.api.attachRequired() && c.Noted == used
	}}
	return len(rest.Settled()) == 0
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
	return attach.VolumeOf(pv).Nodes != attach.MultiNode && slices.ContainsFunc(w.api.attachments(), func(other *storagev1.VolumeAttachment) bool {
		return other.Name != va.Name && attach.VolumeName(other) == pv.Name && other.Status.Attached && other.DeletionTimestamp == nil
	})
}
