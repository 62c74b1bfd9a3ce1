package reconcile

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// userStep is a kind of step of users.
type userStep int8

const (
	userCreates userStep = iota
	userDeletes
	userStrips       // the finalizer of a VolumeAttachment
	userStripsVolume // the finalizer of a PersistentVolume
	userChangesID    // the node ID of a node
	userDeletesVolume
	userStopsUsing // the kubelet of the first attachment's node has unmounted its volume
	userChangesRequired
	userSteps
)

// deletedAt is when objects are deleted: the clock stands still.
var deletedAt = metav1.NewTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))

func (w *exploredWorld) use(s userStep) *exploredWorld {
	next := w.clone()
	next.users.left[s]--
	return next
}

func (m *volumeModel) userSteps(w *exploredWorld, add addStep) {
	left := w.users.left
	for _, c := range m.Attachments {
		va, _ := w.api.find(attachments, c.name).(*storagev1.VolumeAttachment)
		if va == nil && left[userCreates] > 0 && w.api.volume(c.volume) != nil {
			add("user creates va "+c.name, true, func() (*exploredWorld, error) {
				next := w.use(userCreates)
				next.users.uids++
				return next.put(attachments, newAttachment(c.name, c.volume, c.node, next.users.uids)), nil
			})
		}
		if va != nil && va.DeletionTimestamp == nil && left[userDeletes] > 0 {
			add("user deletes va "+c.name, true, func() (*exploredWorld, error) {
				return w.use(userDeletes).remove(attachments, va), nil
			})
		}
		// A VolumeAttachment that is being deleted ends without its finalizer after its detach too. If somebody strips it while
		// no replica leads, only the driver's list can tell the difference (hub/hub.go:observeDeletion).
		known := va != nil && (va.DeletionTimestamp == nil || len(w.replicas) == 1)
		if known && attach.HasFinalizer(va.Finalizers, exploredFinalizer) && left[userStrips] > 0 {
			add("user strips the finalizer of va "+c.name, true, func() (*exploredWorld, error) {
				next := w.use(userStrips)
				next.users.taint = true
				return next.put(attachments, withoutFinalizer(va)), nil
			})
		}
	}
	for _, o := range w.api.objects[volumes] {
		pv := o.(*corev1.PersistentVolume)
		if pv.DeletionTimestamp == nil && left[userDeletesVolume] > 0 {
			add("user deletes pv "+pv.Name, true, func() (*exploredWorld, error) {
				return w.use(userDeletesVolume).remove(volumes, pv), nil
			})
		}
		if attach.HasFinalizer(pv.Finalizers, exploredFinalizer) && left[userStripsVolume] > 0 {
			add("user strips the finalizer of pv "+pv.Name, true, func() (*exploredWorld, error) {
				next := w.use(userStripsVolume)
				next.users.taint = true
				return next.put(volumes, withoutFinalizer(pv)), nil
			})
		}
	}
	if w.users.used != (attach.Target{}) && left[userStopsUsing] > 0 {
		add("the kubelet stops using the volume", true, func() (*exploredWorld, error) {
			next := w.use(userStopsUsing)
			next.users.used = attach.Target{}
			return next, nil
		})
	}
	if left[userChangesRequired] > 0 {
		required := !w.api.attachRequired()
		add(fmt.Sprintf("attachRequired becomes %t", required), true, func() (*exploredWorld, error) {
			return w.use(userChangesRequired).put(drivers, newDriver(required)), nil
		})
	}
	if left[userChangesID] > 0 {
		add("the driver registers n1 under another node ID", true, func() (*exploredWorld, error) {
			next := w.use(userChangesID)
			next.users.taint = true
			return next.put(nodes, newNode("n1", fmt.Sprintf("new-id-n1-%d", left[userChangesID]))), nil
		})
	}
}

func withoutFinalizer(o apiObject) apiObject {
	o = o.DeepCopyObject().(apiObject)
	o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == exploredFinalizer }))
	return o
}
