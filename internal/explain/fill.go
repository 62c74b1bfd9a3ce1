package explain

import (
	"cmp"
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// fill reads the other objects of a volume.
func (g *gatherer) fill(ctx context.Context, v *Volume) {
	if v.Inline != "" {
		return
	}
	g.fillUse(ctx, v)
	v.Driver = driverOf(v)
	v.Node = one(ctx, g, "Node", "", v.NodeName, g.Kube.CoreV1().Nodes().Get)
	v.CSINode = one(ctx, g, "CSINode", "", v.NodeName, g.Kube.StorageV1().CSINodes().Get)
	if v.Driver == "" {
		return
	}
	v.CSIDriver = one(ctx, g, "CSIDriver", "", v.Driver, g.Kube.StorageV1().CSIDrivers().Get)
	v.Served = g.facts.Hub.View.Driver(v.Driver)
	if va := v.Attachment.Value(); va != nil && v.Served != nil {
		v.Seen = g.seen(ctx, v.Served.Replica, va.Name)
	}
	v.Reported = g.volumeHealth(ctx, v)
	g.fillLeases(ctx, v)
	g.fillSecret(ctx, v)
}

// driverOf returns the CSI driver of a volume, "" if it has none or is not known.
func driverOf(v *Volume) string {
	if va := v.Attachment.Value(); va != nil {
		return va.Spec.Attacher
	}
	if spec := v.spec(); spec != nil && spec.CSI != nil {
		return spec.CSI.Driver
	}
	if pv := v.PersistentVolume.Value(); pv != nil {
		return pv.Annotations[attach.AnnotationMigratedTo]
	}
	return ""
}

// seen asks the replica that works for the driver about a VolumeAttachment.
func (g *gatherer) seen(ctx context.Context, replica, name string) Object[status.Attachment] {
	if row, known := g.rows[name]; known {
		return Present(&row)
	}
	a, err := g.Hub.Attachment(ctx, replica, name)
	if err == nil && a == nil {
		return Absent[status.Attachment]()
	}
	if err != nil {
		return Unreadable[status.Attachment](err)
	}
	return Present(a)
}

// fillLeases looks for the lease in all namespaces: a csi-attacher has it in its own namespace. If
// leases may not be listed, it reads the lease of the hub.
func (g *gatherer) fillLeases(ctx context.Context, v *Volume) {
	v.Leases = Leases{Name: registry.LeaseName(v.Driver), Where: "any namespace"}
	namespace := g.Namespace
	if v.Served != nil {
		v.Leases.Name = cmp.Or(v.Served.Lease.Name, v.Leases.Name)
		namespace = cmp.Or(v.Served.Lease.Namespace, namespace)
	}
	v.Leases.All = g.leases(ctx, v.Leases.Name)
	if v.Leases.All.Err() == nil {
		return
	}
	v.Leases.Where, v.Leases.OthersErr = "namespace "+namespace, v.Leases.All.Err()
	lease := one(ctx, g, "Lease", namespace, v.Leases.Name, g.Kube.CoordinationV1().Leases(namespace).Get)
	switch {
	case lease.Value() != nil:
		v.Leases.All = Present(&[]coordinationv1.Lease{*lease.Value()})
	case lease.Missing():
		v.Leases.All = Present(&[]coordinationv1.Lease{})
	}
}

// fillSecret finds out whether the secret of a volume exists. It asks for a table row without the
// object, so that the contents do not leave the API server.
func (g *gatherer) fillSecret(ctx context.Context, v *Volume) {
	spec := v.spec()
	if spec == nil || spec.CSI == nil || spec.CSI.ControllerPublishSecretRef == nil {
		return // the calls need none, or it is not known
	}
	secret := spec.CSI.ControllerPublishSecretRef
	v.Secret = Secret{Namespace: secret.Namespace, Name: secret.Name}
	v.Secret.Object = one(ctx, g, "Secret", secret.Namespace, secret.Name, func(ctx context.Context, name string, _ metav1.GetOptions) (*struct{}, error) {
		return &struct{}{}, g.Kube.CoreV1().RESTClient().Get().Namespace(secret.Namespace).Resource("secrets").Name(name).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Param("includeObject", string(metav1.IncludeNone)).
			Do(ctx).Error()
	})
}
