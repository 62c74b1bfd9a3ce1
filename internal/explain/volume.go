package explain

import (
	"cmp"
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// volume is one volume on one node: what is known about it, and what is said about that. A driver or a node that was asked
// about is a volume of which nothing else is known.
type volume struct {
	*explainer

	// mount is the name of the volume in the Pod; empty if the question is not about a Pod.
	mount string
	// migrated is an in-tree volume in the spec of the Pod, translated to CSI. It needs an attach
	// and has no PersistentVolume. nil for all others.
	migrated *corev1.PersistentVolumeSpec

	namespace, claimName string // of the claim, empty without one
	claim                object[corev1.PersistentVolumeClaim]
	volumeName           string // of the PersistentVolume, empty if not known
	pv                   object[corev1.PersistentVolume]
	pods                 object[[]corev1.Pod] // with the claim, which have not ended
	class                object[storagev1.StorageClass]

	nodeName string // where the volume is needed, empty if not known
	node     object[corev1.Node]
	csiNode  object[storagev1.CSINode]

	driver    string // CSI driver of the volume, empty if it has none or is not known
	csiDriver object[storagev1.CSIDriver]
	lease     status.Lease // of the driver: its name, and its content as the hub reports it or as it was read
	leaseRead object[coordinationv1.Lease]

	// va is the VolumeAttachment of the volume for the node. others are all of the volume.
	va     object[storagev1.VolumeAttachment]
	others object[[]storagev1.VolumeAttachment]
	// otherNode is the node to which a single-node volume is attached instead.
	otherNode object[corev1.Node]

	served *hubclient.Driver  // nil: the hub does not serve the driver, or was not asked
	seen   *status.Attachment // as the replica that works for the driver sees it; nil if it does not know it, or was not asked

	report      VolumeReport
	lastResorts []diagnosis.Diagnosis // see later
}

// findVolumes finds the object of the question and its volumes.
func (e *explainer) findVolumes(ctx context.Context) (exists bool, err error) {
	switch q := e.question; q.Kind {
	case PersistentVolume:
		pv := e.persistentVolume(ctx, q.Name)
		e.onEachNode(ctx, volume{volumeName: q.Name})
		return pv.value != nil || pv.missing && e.volumes[0].va.value != nil, pv.err // it may have been deleted by force
	case PersistentVolumeClaim:
		claim := e.persistentVolumeClaim(ctx, q.Namespace, q.Name)
		if claim.value != nil {
			e.onEachNode(ctx, volume{namespace: q.Namespace, claimName: q.Name, volumeName: claim.value.Spec.VolumeName})
		}
		return claim.value != nil, claim.err
	case Pod:
		pod := e.podNamed(ctx, q.Namespace, q.Name)
		if e.pod = pod.value; e.pod != nil {
			e.ofPod(ctx)
		}
		return pod.value != nil, pod.err
	}
	va := one(ctx, &e.reader, VolumeAttachment, "", e.question.Name, e.Kube.StorageV1().VolumeAttachments().Get)
	if va.value != nil {
		name, inline := attach.VolumeName(va.value), va.value.Spec.Source.InlineVolumeSpec
		e.volumes = []*volume{{explainer: e, volumeName: name, nodeName: va.value.Spec.NodeName, va: va,
			others: e.attachments(ctx, func(other *storagev1.VolumeAttachment) bool { return isOf(other, name, inline) })}}
	}
	return va.value != nil, va.err
}

// isOf reports whether a VolumeAttachment is of the PersistentVolume of a name, or, without a name, of
// an inline volume. Both may be empty.
func isOf(va *storagev1.VolumeAttachment, volume string, inline *corev1.PersistentVolumeSpec) bool {
	if volume != "" {
		return attach.VolumeName(va) == volume
	}
	its := va.Spec.Source.InlineVolumeSpec
	return inline != nil && inline.CSI != nil && its != nil && its.CSI != nil &&
		inline.CSI.Driver == its.CSI.Driver && inline.CSI.VolumeHandle == its.CSI.VolumeHandle
}

// ofVolume reads the VolumeAttachments of a PersistentVolume.
func (e *explainer) ofVolume(ctx context.Context, name string) object[[]storagev1.VolumeAttachment] {
	return e.attachments(ctx, func(va *storagev1.VolumeAttachment) bool { return isOf(va, name, nil) })
}

// onEachNode adds the volume once for each node that needs it: by a VolumeAttachment, or by a Pod.
func (e *explainer) onEachNode(ctx context.Context, v volume) {
	v.explainer = e
	if v.volumeName == "" { // a claim that is not bound
		e.volumes = []*volume{&v}
		return
	}
	v.others = e.ofVolume(ctx, v.volumeName)
	v.readUse(ctx)
	v.addAttachments(func(string) bool { return true })
	for _, p := range items(v.pods) {
		known := func(other *volume) bool { return other.nodeName == p.Spec.NodeName }
		if at := v; p.Spec.NodeName != "" && v.others.err == nil && !slices.ContainsFunc(e.volumes, known) {
			at.nodeName, at.va.missing = p.Spec.NodeName, true
			e.volumes = append(e.volumes, &at)
		}
	}
	if len(e.volumes) == 0 {
		v.va.err, v.va.missing = v.others.err, v.others.err == nil
		e.volumes = []*volume{&v}
	}
}

// addAttachments adds the volume once for each of its VolumeAttachments on some nodes, and reports whether there is one.
func (v volume) addAttachments(on func(node string) bool) (found bool) {
	for _, va := range items(v.others) {
		if at := v; on(va.Spec.NodeName) {
			at.nodeName, at.va = va.Spec.NodeName, object[storagev1.VolumeAttachment]{value: &va}
			v.volumes, found = append(v.volumes, &at), true
		}
	}
	return found
}

// translator translates in-tree volumes to CSI. It has no state.
var translator = csitranslation.New()

// ofPod adds each volume of the Pod that could need an attach.
func (e *explainer) ofPod(ctx context.Context) {
	for i := range e.pod.Spec.Volumes {
		mounted := &e.pod.Spec.Volumes[i]
		v := &volume{explainer: e, mount: mounted.Name, namespace: e.pod.Namespace, nodeName: e.pod.Spec.NodeName, claimName: ClaimOf(e.pod, mounted)}
		switch {
		case v.claimName != "":
			if claim := e.persistentVolumeClaim(ctx, v.namespace, v.claimName).value; claim != nil {
				v.volumeName = claim.Spec.VolumeName
			}
		case translator.IsInlineMigratable(mounted): // as kube-controller-manager translates it
			pv, err := translator.TranslateInTreeInlineVolumeToCSI(klog.Background(), mounted, v.namespace)
			if err != nil || pv.Spec.CSI == nil {
				continue // kube-controller-manager cannot attach it either
			}
			v.migrated = &pv.Spec
		default:
			continue
		}
		if v.volumeName != "" || v.migrated != nil {
			v.others = e.attachments(ctx, func(va *storagev1.VolumeAttachment) bool { return isOf(va, v.volumeName, v.migrated) })
			v.va.err, v.va.missing = v.others.err, v.others.err == nil
		}
		if v.addAttachments(func(node string) bool { return node == v.nodeName }) {
			continue
		}
		e.volumes = append(e.volumes, v)
	}
}

// read reads the other objects of the volume.
func (v *volume) read(ctx context.Context) {
	v.readUse(ctx)
	v.node = v.nodeNamed(ctx, v.nodeName)
	v.csiNode = one(ctx, &v.reader, "CSINode", "", v.nodeName, v.Kube.StorageV1().CSINodes().Get)
	for _, other := range items(v.others) {
		if other.Spec.NodeName != v.nodeName && v.singleNode() && other.Status.Attached && other.DeletionTimestamp == nil {
			v.otherNode = v.nodeNamed(ctx, other.Spec.NodeName)
		}
	}
	spec, va := v.spec(), v.va.value
	switch {
	case va != nil:
		v.driver = va.Spec.Attacher
	case spec != nil && spec.CSI != nil:
		v.driver = spec.CSI.Driver
	case v.pv.value != nil:
		v.driver = v.pv.value.Annotations[attach.AnnotationMigratedTo]
	}
	v.readDriver(ctx)
	if va != nil && v.HubErr == nil {
		err := v.Hub.Volumes(ctx, v.view, status.AttachmentFilter{Name: va.Name}, func(a status.Attachment) { a.Since = cmp.Or(a.Since, asked(va)); v.seen = &a })
		if err != nil {
			v.missed("the state of "+ref(VolumeAttachment, "", va.Name)+" in the hub", err)
		}
	}
}

// readUse reads the PersistentVolume of the volume, its claim and the Pods that use the claim.
func (v *volume) readUse(ctx context.Context) {
	v.pv = v.persistentVolume(ctx, v.volumeName)
	pv := v.pv.value
	if pv != nil && v.claimName == "" && pv.Spec.ClaimRef != nil {
		v.namespace, v.claimName = pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name
	}
	v.claim = v.persistentVolumeClaim(ctx, v.namespace, v.claimName)
	if claim := v.claim.value; claim != nil && v.volumeName == "" {
		v.class = one(ctx, &v.reader, "StorageClass", "", ptr.Deref(claim.Spec.StorageClassName, ""), v.Kube.StorageV1().StorageClasses().Get)
	}
	switch {
	case v.claimName == "" && pv == nil: // it may have a claim
	case v.claimName == "" || !v.ofThisClaim():
		v.pods.value = &[]corev1.Pod{}
	default:
		v.pods = v.users(ctx, v.namespace, v.claimName)
	}
}

// readDriver reads the objects of the driver.
func (v *volume) readDriver(ctx context.Context) {
	if v.driver == "" {
		return
	}
	v.csiDriver = one(ctx, &v.reader, "CSIDriver", "", v.driver, v.Kube.StorageV1().CSIDrivers().Get)
	v.served = v.view.Driver(v.driver)
	v.lease.Name, v.lease.Namespace = registry.LeaseName(v.driver), v.Namespace
	if v.served != nil {
		v.lease = v.served.Lease
	}
	v.leaseRead = one(ctx, &v.reader, "Lease", v.lease.Namespace, v.lease.Name, v.Kube.CoordinationV1().Leases(v.lease.Namespace).Get)
	// The hub knows less of a lease that it does not hold, and more if it sees that the lease has expired.
	if l := v.leaseRead.value; l != nil && (v.served == nil || ptr.Deref(l.Spec.HolderIdentity, "") == v.lease.Holder) {
		mine := v.lease.Mine
		v.lease = leaseOf(l, v.now)
		v.lease.Mine = mine
	}
}

// leaseOf returns the content of a Lease as of now: if it was not renewed in time, it has no holder any more.
func leaseOf(l *coordinationv1.Lease, now time.Time) status.Lease {
	lease := status.Lease{
		Namespace: l.Namespace, Name: l.Name,
		Holder:   ptr.Deref(l.Spec.HolderIdentity, ""),
		Since:    ptr.Deref(l.Spec.AcquireTime, metav1.MicroTime{}).Time,
		Renewed:  ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time,
		Duration: time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second,
	}
	if lease.Holder != "" && lease.Duration > 0 && now.After(lease.Renewed.Add(lease.Duration)) {
		lease.Holder, lease.LastHolder = "", lease.Holder
	}
	return lease
}

// spec returns the specification of the volume, nil if it is not known.
func (v *volume) spec() *corev1.PersistentVolumeSpec {
	if va := v.va.value; va != nil && va.Spec.Source.InlineVolumeSpec != nil {
		return va.Spec.Source.InlineVolumeSpec
	}
	if v.pv.value != nil {
		return &v.pv.value.Spec
	}
	return v.migrated
}

// ofThisClaim reports whether the volume is bound to the claim, and not to an earlier claim of the
// same name. It returns true if one of the two is not known.
func (v *volume) ofThisClaim() bool {
	pv, claim := v.pv.value, v.claim.value
	if pv == nil || claim == nil {
		return true
	}
	if bound := pv.Spec.ClaimRef; bound != nil && bound.UID != "" && bound.UID != claim.UID {
		return false
	}
	return claim.Spec.VolumeName == "" || claim.Spec.VolumeName == pv.Name
}

// singleNode reports whether the volume may be attached to one node only, as its specification says.
func (v *volume) singleNode() bool {
	spec := v.spec()
	return spec != nil && !slices.ContainsFunc(spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m == corev1.ReadOnlyMany || m == corev1.ReadWriteMany
	})
}

// handle returns the volume's handle, "" if it is not known.
func (v *volume) handle() (handle string) {
	if va := v.va.value; va != nil {
		handle = va.Annotations[attach.AnnotationVolumeHandle]
	}
	if pv := v.pv.value; pv != nil {
		handle = cmp.Or(handle, attach.VolumeOf(pv).Handle)
	}
	return handle
}

// ready returns the condition of a node that says whether it is ready, nil if it has none.
func ready(n *corev1.Node) *corev1.NodeCondition {
	if n != nil {
		if i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }); i >= 0 {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
