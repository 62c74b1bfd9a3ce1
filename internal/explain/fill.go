package explain

import (
	"cmp"
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// read makes an Object of what a client returns.
func read[T any](value *T, err error) Object[T] {
	switch {
	case apierrors.IsNotFound(err):
		return Object[T]{}
	case err != nil:
		return Object[T]{Err: err}
	}
	return Object[T]{Value: value}
}

// fill finds out all else about a volume.
func (g *gatherer) fill(ctx context.Context, v *Volume) {
	if v.Inline != "" {
		return
	}
	if v.VolumeName != "" {
		v.PersistentVolume = read(g.Kube.CoreV1().PersistentVolumes().Get(ctx, v.VolumeName, metav1.GetOptions{}))
	}
	pv, va := v.PersistentVolume.Value, v.Attachment.Value
	if pv != nil && v.ClaimName == "" && pv.Spec.ClaimRef != nil {
		v.Namespace, v.ClaimName = pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name
	}
	if g.facts.Question.Kind == PersistentVolumeClaim {
		v.Claim = read(g.Kube.CoreV1().PersistentVolumeClaims(v.Namespace).Get(ctx, v.ClaimName, metav1.GetOptions{}))
	}
	v.Users = g.users(ctx, v)
	if pv != nil {
		v.Driver = driverOf(pv)
	}
	if va != nil {
		v.Driver = va.Spec.Attacher
	}
	if v.NodeName != "" {
		v.Node = read(g.Kube.CoreV1().Nodes().Get(ctx, v.NodeName, metav1.GetOptions{}))
		v.CSINode = read(g.Kube.StorageV1().CSINodes().Get(ctx, v.NodeName, metav1.GetOptions{}))
	}
	if v.Driver == "" {
		return
	}
	v.CSIDriver = read(g.Kube.StorageV1().CSIDrivers().Get(ctx, v.Driver, metav1.GetOptions{}))
	v.Served = g.facts.Hub.View.Driver(v.Driver)
	if v.Served != nil && va != nil {
		seen, err := g.Hub.Attachment(ctx, v.Served.Replica, va.Name)
		if err == nil {
			v.Seen = seen
		}
		v.SeenErr = err
	}
	g.fillLeases(ctx, v)
	g.fillSecret(ctx, v)
}

// driverOf returns the CSI driver of a PersistentVolume, "" if it has none.
func driverOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI != nil {
		return pv.Spec.CSI.Driver
	}
	return pv.Annotations[attach.AnnotationMigratedTo]
}

// fillLeases looks for the lease in all namespaces: a csi-attacher has it in its own.
// Who may not list leases gets that of the hub.
func (g *gatherer) fillLeases(ctx context.Context, v *Volume) {
	v.Leases = Leases{Name: registry.LeaseName(v.Driver), Where: "any namespace"}
	namespace := g.Namespace
	if v.Served != nil {
		v.Leases.Name = cmp.Or(v.Served.Lease.Name, v.Leases.Name)
		namespace = cmp.Or(v.Served.Lease.Namespace, namespace)
	}
	list, err := g.Kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + v.Leases.Name})
	if err == nil {
		v.Leases.All = list.Items
		return
	}
	v.Leases.Where = "namespace " + namespace
	lease, err := g.Kube.CoordinationV1().Leases(namespace).Get(ctx, v.Leases.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		v.Leases.All = []coordinationv1.Lease{*lease}
	case !apierrors.IsNotFound(err):
		v.Leases.Err = err
	}
}

// fillSecret finds out whether the secret of a volume exists. It is asked for as a row
// of a table without the object: its contents do not leave the API server.
func (g *gatherer) fillSecret(ctx context.Context, v *Volume) {
	pv := v.PersistentVolume.Value
	if pv == nil || pv.Spec.CSI == nil || pv.Spec.CSI.ControllerPublishSecretRef == nil {
		return
	}
	ref := pv.Spec.CSI.ControllerPublishSecretRef
	v.Secret = Secret{Namespace: ref.Namespace, Name: ref.Name}
	err := g.Kube.CoreV1().RESTClient().Get().Namespace(ref.Namespace).Resource("secrets").Name(ref.Name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Param("includeObject", string(metav1.IncludeNone)).
		Do(ctx).Error()
	switch {
	case err == nil:
		v.Secret.Exists = true
	case !apierrors.IsNotFound(err):
		v.Secret.Err = err
	}
}
