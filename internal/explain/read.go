package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// object is an object or a list that was read: its value, or that it is missing, or why it could not be read. The zero
// object was not read.
type object[T any] struct {
	value   *T
	missing bool
	err     error
}

// items returns the objects of a list, none if it was not read.
func items[T any](list object[[]T]) []T {
	return *cmp.Or(list.value, new([]T))
}

// reader reads each object once, so that all volumes see the same state.
type reader struct {
	objects map[string]any // object[T] by kind and name
	unknown []string       // what could not be read
}

func (r *reader) missed(what string, err error) {
	r.unknown = append(r.unknown, fmt.Sprintf("%s: %v", what, err))
}

// once returns what read returned for a name. The name says what it is.
func once[T any](r *reader, name string, read func() (*T, error)) object[T] {
	if o, known := r.objects[name].(object[T]); known {
		return o
	}
	value, err := read()
	o := object[T]{value: value}
	switch {
	case apierrors.IsNotFound(err):
		o = object[T]{missing: true}
	case err != nil:
		o = object[T]{err: err}
		r.missed(name, err)
	}
	r.objects[name] = o
	return o
}

// one reads an object. Without a name it is not read.
func one[T any](ctx context.Context, r *reader, kind Kind, namespace, name string, get func(context.Context, string, metav1.GetOptions) (*T, error)) object[T] {
	if name == "" {
		return object[T]{}
	}
	return once(r, ref(kind, namespace, name), func() (*T, error) { return get(ctx, name, metav1.GetOptions{}) })
}

// selected returns the objects of a list that was read for which wanted is true.
func selected[L, T any](list object[L], of func(*L) []T, wanted func(*T) bool) object[[]T] {
	if list.value == nil {
		return object[[]T]{err: list.err}
	}
	some := slices.DeleteFunc(slices.Clone(of(list.value)), func(o T) bool { return !wanted(&o) })
	return object[[]T]{value: &some}
}

func (e *explainer) persistentVolume(ctx context.Context, name string) object[corev1.PersistentVolume] {
	return one(ctx, &e.reader, PersistentVolume, "", name, e.Kube.CoreV1().PersistentVolumes().Get)
}

func (e *explainer) persistentVolumeClaim(ctx context.Context, namespace, name string) object[corev1.PersistentVolumeClaim] {
	return one(ctx, &e.reader, PersistentVolumeClaim, namespace, name, e.Kube.CoreV1().PersistentVolumeClaims(namespace).Get)
}

func (e *explainer) podNamed(ctx context.Context, namespace, name string) object[corev1.Pod] {
	return one(ctx, &e.reader, Pod, namespace, name, e.Kube.CoreV1().Pods(namespace).Get)
}

func (e *explainer) nodeNamed(ctx context.Context, name string) object[corev1.Node] {
	return one(ctx, &e.reader, Node, "", name, e.Kube.CoreV1().Nodes().Get)
}

// attachments reads the VolumeAttachments for which wanted is true.
func (e *explainer) attachments(ctx context.Context, wanted func(*storagev1.VolumeAttachment) bool) object[[]storagev1.VolumeAttachment] {
	return selected(once(&e.reader, "the VolumeAttachments", func() (*storagev1.VolumeAttachmentList, error) {
		return e.Kube.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	}), func(l *storagev1.VolumeAttachmentList) []storagev1.VolumeAttachment { return l.Items }, wanted)
}

// users reads the Pods that use a claim and have not ended.
func (e *explainer) users(ctx context.Context, namespace, claim string) object[[]corev1.Pod] {
	return selected(once(&e.reader, "the Pods in namespace "+namespace, func() (*corev1.PodList, error) {
		return e.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	}), func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(p *corev1.Pod) bool {
		return !finished(p) && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return ClaimOf(p, &v) == claim })
	})
}

// ClaimOf returns the name of the claim of a Pod's volume, "" if it has none.
func ClaimOf(p *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	}
	return ""
}

// finished reports whether a Pod has ended for good.
func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
