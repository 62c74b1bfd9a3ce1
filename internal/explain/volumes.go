package explain

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// translator translates in-tree volumes to CSI. It has no state.
var translator = csitranslation.New()

// ofAttachment returns the volume of a VolumeAttachment.
func (g *gatherer) ofAttachment(ctx context.Context, va *storagev1.VolumeAttachment) Volume {
	return Volume{
		VolumeName: attach.VolumeName(va),
		NodeName:   va.Spec.NodeName,
		Attachment: Present(va),
		Others: g.attachments(ctx, func(other *storagev1.VolumeAttachment) bool {
			return other.Name != va.Name && isOf(other, attach.VolumeName(va), va.Spec.Source.InlineVolumeSpec)
		}),
	}
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

// onEachNode adds the volume once for each node that needs it.
func (g *gatherer) onEachNode(ctx context.Context, v Volume) {
	if v.VolumeName == "" { // a claim that is not bound
		g.facts.Volumes = []Volume{v}
		return
	}
	all := g.attachments(ctx, func(va *storagev1.VolumeAttachment) bool { return isOf(va, v.VolumeName, nil) })
	nodes := map[string]bool{}
	for i, va := range items(all) {
		at := v
		at.NodeName = va.Spec.NodeName
		at.setAttachment(items(all), i)
		nodes[at.NodeName] = true
		g.facts.Volumes = append(g.facts.Volumes, at)
	}
	v.findAttachment(all)
	g.fillUse(ctx, &v)
	for _, p := range items(v.Users) {
		if node := p.Spec.NodeName; node != "" && !nodes[node] && all.Err() == nil {
			nodes[node] = true
			at := v
			at.NodeName = node
			g.facts.Volumes = append(g.facts.Volumes, at)
		}
	}
	if len(g.facts.Volumes) == 0 {
		g.facts.Volumes = []Volume{v}
	}
}

// findAttachment finds the VolumeAttachment for the volume's node among all of the volume.
func (v *Volume) findAttachment(all Object[[]storagev1.VolumeAttachment]) {
	if all.Err() != nil {
		v.Attachment, v.Others = Unreadable[storagev1.VolumeAttachment](all.Err()), all
		return
	}
	v.setAttachment(items(all), slices.IndexFunc(items(all), func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName == v.NodeName }))
}

// setAttachment sets the i-th VolumeAttachment of the volume as its own and the rest as the others; if i
// is negative, the volume has none.
func (v *Volume) setAttachment(all []storagev1.VolumeAttachment, i int) {
	v.Attachment = Absent[storagev1.VolumeAttachment]()
	if i >= 0 {
		v.Attachment, all = Present(&all[i]), slices.Delete(slices.Clone(all), i, i+1)
	}
	v.Others = Present(&all)
}

// ofPod adds each volume of a Pod that could need an attach.
func (g *gatherer) ofPod(ctx context.Context, pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		mounted := &pod.Spec.Volumes[i]
		v := Volume{Mount: mounted.Name, Namespace: pod.Namespace, NodeName: pod.Spec.NodeName}
		switch {
		case mounted.PersistentVolumeClaim != nil:
			v.ClaimName = mounted.PersistentVolumeClaim.ClaimName
		case mounted.Ephemeral != nil:
			v.ClaimName = pod.Name + "-" + mounted.Name
		case mounted.CSI != nil:
			v.Inline = mounted.CSI.Driver
		default:
			if v.Migrated = migrated(mounted, pod.Namespace); v.Migrated == nil {
				continue
			}
		}
		if claim := g.claim(ctx, v.Namespace, v.ClaimName).Value(); claim != nil {
			v.VolumeName = claim.Spec.VolumeName
		}
		if v.VolumeName != "" || v.Migrated != nil {
			v.findAttachment(g.attachments(ctx, func(va *storagev1.VolumeAttachment) bool { return isOf(va, v.VolumeName, v.Migrated) }))
		}
		g.facts.Volumes = append(g.facts.Volumes, v)
	}
}

// migrated returns an in-tree volume of a Pod as kube-controller-manager translates it to
// CSI, nil if it does not.
func migrated(mounted *corev1.Volume, namespace string) *corev1.PersistentVolumeSpec {
	if !translator.IsInlineMigratable(mounted) {
		return nil
	}
	pv, err := translator.TranslateInTreeInlineVolumeToCSI(klog.Background(), mounted, namespace)
	if err != nil || pv.Spec.CSI == nil {
		return nil // kube-controller-manager cannot attach it either
	}
	return &pv.Spec
}

// fillUse reads the PersistentVolume of the volume, its claim and the Pods that use the claim.
func (g *gatherer) fillUse(ctx context.Context, v *Volume) {
	v.PersistentVolume = g.persistentVolume(ctx, v.VolumeName)
	if pv := v.PersistentVolume.Value(); pv != nil && v.ClaimName == "" && pv.Spec.ClaimRef != nil {
		v.Namespace, v.ClaimName = pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name
	}
	v.Claim = g.claim(ctx, v.Namespace, v.ClaimName)
	v.Users = g.users(ctx, v)
}

// users returns the Pods that use the volume by its claim and have not ended.
func (g *gatherer) users(ctx context.Context, v *Volume) Object[[]corev1.Pod] {
	switch {
	case v.ClaimName == "" && v.PersistentVolume.Value() == nil:
		return Object[[]corev1.Pod]{} // it may have a claim
	case v.ClaimName == "" || !v.ofThisClaim():
		return Present(&[]corev1.Pod{})
	}
	return g.pods(ctx, v.Namespace, func(p *corev1.Pod) bool { return !finished(p) && uses(p, v.ClaimName) })
}

func uses(p *corev1.Pod, claim string) bool {
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && c.ClaimName == claim || v.Ephemeral != nil && p.Name+"-"+v.Name == claim {
			return true
		}
	}
	return false
}
