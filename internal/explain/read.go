package explain

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// once returns what read returns, or what it returned before under the same key.
func once[T any](g *gatherer, key string, read func() Object[T]) Object[T] {
	if o, known := g.objects[key].(Object[T]); known {
		return o
	}
	o := read()
	g.objects[key] = o
	return o
}

// one reads an object. Without a name it is not read.
func one[T any](ctx context.Context, g *gatherer, kind Kind, namespace, name string, get func(context.Context, string, metav1.GetOptions) (*T, error)) Object[T] {
	if name == "" {
		return Object[T]{}
	}
	return once(g, ref(kind, namespace, name), func() Object[T] {
		value, err := get(ctx, name, metav1.GetOptions{})
		return answered(value, err)
	})
}

// list reads objects with a list type L, of which items returns the objects.
func list[L, T any](ctx context.Context, g *gatherer, key string, options metav1.ListOptions, get func(context.Context, metav1.ListOptions) (*L, error), items func(*L) []T) Object[[]T] {
	return once(g, key, func() Object[[]T] {
		l, err := get(ctx, options)
		if err != nil {
			return Unreadable[[]T](err)
		}
		all := items(l)
		return Present(&all)
	})
}

func (g *gatherer) persistentVolume(ctx context.Context, name string) Object[corev1.PersistentVolume] {
	return one(ctx, g, PersistentVolume, "", name, g.Kube.CoreV1().PersistentVolumes().Get)
}

func (g *gatherer) claim(ctx context.Context, namespace, name string) Object[corev1.PersistentVolumeClaim] {
	return one(ctx, g, PersistentVolumeClaim, namespace, name, g.Kube.CoreV1().PersistentVolumeClaims(namespace).Get)
}

// attachments reads the VolumeAttachments for which wanted is true.
func (g *gatherer) attachments(ctx context.Context, wanted func(*storagev1.VolumeAttachment) bool) Object[[]storagev1.VolumeAttachment] {
	return selected(list(ctx, g, "VolumeAttachments", metav1.ListOptions{}, g.Kube.StorageV1().VolumeAttachments().List,
		func(l *storagev1.VolumeAttachmentList) []storagev1.VolumeAttachment { return l.Items }), wanted)
}

// pods reads the Pods of a namespace for which wanted is true.
func (g *gatherer) pods(ctx context.Context, namespace string, wanted func(*corev1.Pod) bool) Object[[]corev1.Pod] {
	return selected(list(ctx, g, "Pods of "+namespace, metav1.ListOptions{}, g.Kube.CoreV1().Pods(namespace).List,
		func(l *corev1.PodList) []corev1.Pod { return l.Items }), wanted)
}

// leases reads the Leases of a name in all namespaces.
func (g *gatherer) leases(ctx context.Context, name string) Object[[]coordinationv1.Lease] {
	return list(ctx, g, "Leases "+name, metav1.ListOptions{FieldSelector: "metadata.name=" + name}, g.Kube.CoordinationV1().Leases(metav1.NamespaceAll).List,
		func(l *coordinationv1.LeaseList) []coordinationv1.Lease { return l.Items })
}

// selected returns the objects of a list for which wanted is true.
func selected[T any](all Object[[]T], wanted func(*T) bool) Object[[]T] {
	if all.Value() == nil {
		return all
	}
	some := []T{}
	for _, o := range items(all) {
		if wanted(&o) {
			some = append(some, o)
		}
	}
	return Present(&some)
}
