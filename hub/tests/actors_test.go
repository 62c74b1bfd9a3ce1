package tests

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// register says which ID the driver has for a node, and makes the node if there is none.
func (v *virtual) register(node, id string) {
	v.t.Helper()
	if _, err := v.kube.CoreV1().Nodes().Get(v.ctx, node, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		v.create(testbed.Node{Name: node})
	}
	n := testbed.CSINode{Node: node, Drivers: map[string]string{virtualDriver: id}}
	v.delete(n)
	v.create(n)
}

// volume makes a PersistentVolume with its name as the handle.
func (v *virtual) volume(name string, modes ...corev1.PersistentVolumeAccessMode) {
	v.t.Helper()
	v.create(testbed.PersistentVolume{Name: name, Driver: virtualDriver, Handle: name, AccessModes: modes})
}

// withNode makes node n with the ID id-n, and volumes.
func (v *virtual) withNode(volumes ...string) {
	v.t.Helper()
	v.register("n", "id-n")
	for _, name := range volumes {
		v.volume(name)
	}
}

// attachment is a VolumeAttachment of a volume, named after both.
func (v *virtual) attachment(volume, node string) testbed.VolumeAttachment {
	return testbed.VolumeAttachment{Name: volume + "-" + node, Driver: virtualDriver, Node: node, PersistentVolume: volume}
}

// attach asks for volumes on node n, and lets a second pass.
func (v *virtual) attach(volumes ...string) (vas []testbed.VolumeAttachment) {
	v.t.Helper()
	for _, name := range volumes {
		vas = append(vas, v.attachment(name, "n"))
	}
	v.createAll(vas)
	v.pass(time.Second)
	return vas
}

// many makes volumes named after a prefix, and asks for them on node n.
func (v *virtual) many(prefix string, n int) (vas []testbed.VolumeAttachment) {
	v.t.Helper()
	for i := range n {
		name := fmt.Sprint(prefix, i)
		v.volume(name)
		vas = append(vas, v.attachment(name, "n"))
	}
	v.createAll(vas)
	return vas
}

func (v *virtual) createAll(vas []testbed.VolumeAttachment) {
	v.t.Helper()
	for _, va := range vas {
		v.create(va)
	}
}

func (v *virtual) deleteAll(vas []testbed.VolumeAttachment) {
	v.t.Helper()
	for _, va := range vas {
		v.delete(va)
	}
}

// attached makes a volume v that a hub has attached to node n as id-n.
func (v *virtual) attached() testbed.VolumeAttachment {
	v.t.Helper()
	v.withNode("v")
	va := v.attach("v")[0]
	v.wantAttached(va.Name)
	return va
}

// wantAttached checks that VolumeAttachments are attached and have no error.
func (v *virtual) wantAttached(names ...string) {
	v.t.Helper()
	for _, name := range names {
		if got := v.get(name); got == nil || !got.Status.Attached || got.Status.AttachError != nil || got.Status.DetachError != nil {
			v.t.Errorf("%s is not attached, or has an error: %+v", name, got)
		}
	}
}

// wantGone checks that VolumeAttachments are gone.
func (v *virtual) wantGone(names ...string) {
	v.t.Helper()
	for _, name := range names {
		if got := v.get(name); got != nil {
			v.t.Errorf("%s is still there: %+v", name, got)
		}
	}
}

// wantAttachError checks that a VolumeAttachment has an attachError with a text.
func (v *virtual) wantAttachError(name, text string) {
	v.t.Helper()
	if got := v.get(name); got == nil || got.Status.AttachError == nil || !strings.Contains(got.Status.AttachError.Message, text) {
		v.t.Errorf("%s: %+v, want an attachError with %q", name, got, text)
	}
}

// wantDetachError checks that a VolumeAttachment has a detachError with a text.
func (v *virtual) wantDetachError(name, text string) {
	v.t.Helper()
	if got := v.get(name); got == nil || got.Status.DetachError == nil || !strings.Contains(got.Status.DetachError.Message, text) {
		v.t.Errorf("%s: %+v, want a detachError with %q", name, got, text)
	}
}

// written is a VolumeAttachment as another replica of the hub leaves it once it is attached at a node ID.
func written(va testbed.VolumeAttachment, nodeID string) *storagev1.VolumeAttachment {
	object := begun(va, nodeID)
	object.Status.Attached = true
	return object
}

// begun is a VolumeAttachment as a hub leaves it that ends before it has the answer to its publish.
func begun(va testbed.VolumeAttachment, nodeID string) *storagev1.VolumeAttachment {
	object := va.Build()
	object.Finalizers = []string{attach.Finalizer(virtualDriver)}
	object.Annotations = map[string]string{attach.AnnotationNodeID: nodeID, attach.AnnotationVolumeHandle: va.PersistentVolume}
	return object
}

// bySidecar is a VolumeAttachment as csi-attacher leaves it: without a note of the volume handle.
func bySidecar(va testbed.VolumeAttachment, nodeID string) *storagev1.VolumeAttachment {
	object := written(va, nodeID)
	delete(object.Annotations, attach.AnnotationVolumeHandle)
	return object
}

// attachedByAnother has another replica of the hub attach an existing VolumeAttachment to node n, whose node ID is id-n.
func (v *virtual) attachedByAnother(va testbed.VolumeAttachment) {
	v.t.Helper()
	v.updateVolume(va.PersistentVolume, func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{attach.Finalizer(virtualDriver)} })
	v.update(va.Name, func(object *storagev1.VolumeAttachment) {
		by := written(va, "id-n")
		object.Finalizers, object.Annotations, object.Status.Attached = by.Finalizers, by.Annotations, true
	})
	v.attachByHand(va.PersistentVolume, "id-n")
}

// attachByHand attaches a volume at a node ID behind the cluster's back.
func (v *virtual) attachByHand(volume, nodeID string) {
	v.t.Helper()
	v.setKnobs(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: volume, Node: nodeID}}})
}

// lose has the storage lose a volume.
func (v *virtual) lose(volume string) {
	v.t.Helper()
	v.setKnobs(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: volume}}})
}

func (v *virtual) refuseToDetach(nodeID string, code codes.Code) {
	v.t.Helper()
	v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: unpublish, Node: nodeID, Code: code}}})
}

// deleteWithoutDetach deletes a VolumeAttachment, and takes its finalizer when the driver has been asked
// to detach it.
func (v *virtual) deleteWithoutDetach(va testbed.VolumeAttachment) {
	v.t.Helper()
	v.delete(va)
	v.pass(time.Second)
	v.stripFinalizers(va.Name)
}

// leaveAttached makes a volume that stays attached to node n as id-n when its VolumeAttachment is gone: the
// driver refuses to detach it with a code.
func (v *virtual) leaveAttached(code codes.Code) testbed.VolumeAttachment {
	v.t.Helper()
	va := v.attached()
	v.refuseToDetach("id-n", code)
	v.deleteWithoutDetach(va)
	return va
}

// vanish removes VolumeAttachments by force, before the hub can put their finalizers back.
func (v *virtual) vanish(vas ...testbed.VolumeAttachment) {
	v.t.Helper()
	v.api.HoldWatches("volumeattachments")
	for _, va := range vas {
		v.stripFinalizers(va.Name)
		v.delete(va)
	}
	v.api.ReleaseWatches("volumeattachments")
}

// recreate deletes a PersistentVolume by force and creates it with other values.
func (v *virtual) recreate(pv testbed.PersistentVolume) {
	v.t.Helper()
	v.removeVolume(pv.Name)
	v.create(pv)
}

// usedAs is the name by which a kubelet says that it uses a volume.
func usedAs(volume string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + virtualDriver + "^" + volume)
}

// inUse has the kubelet of a node say which volumes it uses.
func (v *virtual) inUse(node string, volumes ...string) {
	v.t.Helper()
	v.nodeStatus(node, func(s *corev1.NodeStatus) {
		s.VolumesInUse = nil
		for _, volume := range volumes {
			s.VolumesInUse = append(s.VolumesInUse, usedAs(volume))
		}
	})
}

// ready has the kubelet of a node say whether it is ready.
func (v *virtual) ready(node string, is corev1.ConditionStatus) {
	v.t.Helper()
	v.nodeStatus(node, func(s *corev1.NodeStatus) {
		s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}
	})
}

func (v *virtual) nodeStatus(node string, change func(*corev1.NodeStatus)) {
	v.t.Helper()
	n, err := v.kube.CoreV1().Nodes().Get(v.ctx, node, metav1.GetOptions{})
	if err == nil {
		change(&n.Status)
		_, err = v.kube.CoreV1().Nodes().UpdateStatus(v.ctx, n, metav1.UpdateOptions{})
	}
	if err != nil {
		v.t.Fatal(err)
	}
}

// attachRequired has somebody create the CSIDriver object again.
func (v *virtual) attachRequired(is bool) {
	v.t.Helper()
	v.delete(testbed.CSIDriver{Name: virtualDriver})
	v.create(testbed.CSIDriver{Name: virtualDriver, NoAttach: !is})
}

// leased has the hubs that are started next compete for the driver's lease.
func (v *virtual) leased() {
	v.t.Helper()
	v.leasedAs("hub")
}

func (v *virtual) leasedAs(identity string) {
	v.t.Helper()
	v.options.Leases = runLeases(&v.objects, lease.Options{Kube: v.options.Kube.(lease.Kube), Identity: identity, Namespace: "hub",
		Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second})
	v.options.LeaseNamespace, v.options.LeaseDuration = "hub", 15*time.Second
}

// holdLease has another process hold the driver's lease, until it is released.
func (v *virtual) holdLease(identity string) (release func()) {
	v.t.Helper()
	renewed, seconds := metav1.NewMicroTime(time.Now().Add(24*time.Hour)), int32(24*60*60)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: registry.LeaseName(virtualDriver), Namespace: "hub"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, RenewTime: &renewed, AcquireTime: &renewed, LeaseDurationSeconds: &seconds}}
	l, err := v.kube.CoordinationV1().Leases("hub").Create(v.ctx, l, metav1.CreateOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	return func() {
		v.t.Helper()
		released := metav1.NowMicro()
		l.Spec.HolderIdentity, l.Spec.RenewTime = new(string), &released
		if _, err := v.kube.CoordinationV1().Leases("hub").Update(v.ctx, l, metav1.UpdateOptions{}); err != nil {
			v.t.Fatal(err)
		}
	}
}

// stealLease has another process hold the driver's lease that the hub has, until it is released.
func (v *virtual) stealLease(identity string) (release func()) {
	v.t.Helper()
	if err := v.kube.CoordinationV1().Leases("hub").Delete(v.ctx, registry.LeaseName(virtualDriver), metav1.DeleteOptions{}); err != nil {
		v.t.Fatal(err)
	}
	release = v.holdLease(identity)
	v.pass(time.Minute)
	if d := v.status(); d.Lease.Mine {
		v.t.Fatalf("the hub has not lost the lease: %+v", d.Lease)
	}
	return release
}

// holder returns the holder of the driver's lease, "" if there is none.
func (v *virtual) holder() string {
	v.t.Helper()
	l, err := v.kube.CoordinationV1().Leases("hub").Get(v.ctx, registry.LeaseName(virtualDriver), metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

func (v *virtual) wantHolder(want string) {
	v.t.Helper()
	if h := v.holder(); h != want {
		v.t.Errorf("the lease is held by %q, want %q", h, want)
	}
}

// sidecar runs a csi-attacher that competes for the driver's lease, until stop is called. stop does not release the
// lease, as csi-attacher by default.
func (v *virtual) sidecar() (leads *atomic.Bool, stop func()) {
	v.t.Helper()
	leads = &atomic.Bool{}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "hub", Name: registry.LeaseName(virtualDriver)},
			Client:     v.kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "csi-attacher-0"},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads.Store(true) }, OnStoppedLeading: func() { leads.Store(false) }},
	})
	if err != nil {
		v.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(v.ctx, klog.Logger{}))
	ended := make(chan struct{})
	go func() { defer close(ended); elector.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	v.t.Cleanup(stop)
	return leads, stop
}
