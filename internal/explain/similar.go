package explain

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// mostSimilar is how many similar names are suggested.
	mostSimilar = 3
	// maxListed bounds the objects of a kind that are listed for similar names.
	maxListed = 2000
)

// similar returns what may have been meant by a question whose object does not exist, as arguments of explain:
// objects of other kinds with the name, then similar names of the kind. What cannot be read is left out.
func (g *gatherer) similar(ctx context.Context, q Question) []string {
	var found []string
	kube, get, all := g.Kube, metav1.GetOptions{}, metav1.ListOptions{Limit: maxListed}
	if q.Kind == VolumeAttachment {
		if g.facts.Hub.View.Driver(q.Name) != nil {
			found = append(found, "driver/"+q.Name)
		} else if _, err := kube.StorageV1().CSIDrivers().Get(ctx, q.Name, get); err == nil {
			found = append(found, "driver/"+q.Name)
		}
		if _, err := kube.CoreV1().PersistentVolumes().Get(ctx, q.Name, get); err == nil {
			found = append(found, "pv/"+q.Name)
		}
		if _, err := kube.CoreV1().Nodes().Get(ctx, q.Name, get); err == nil {
			found = append(found, "node/"+q.Name)
		}
		if ns := g.AskedNamespace; ns != "" {
			if _, err := kube.CoreV1().Pods(ns).Get(ctx, q.Name, get); err == nil {
				found = append(found, "pod/"+ns+"/"+q.Name)
			}
			if _, err := kube.CoreV1().PersistentVolumeClaims(ns).Get(ctx, q.Name, get); err == nil {
				found = append(found, "pvc/"+ns+"/"+q.Name)
			}
		}
	}
	if len(found) > 0 {
		return found
	}
	var names []string
	prefix := ""
	switch q.Kind {
	case VolumeAttachment:
		l, _ := kube.StorageV1().VolumeAttachments().List(ctx, all)
		names = namesOf(l.Items, func(o *storagev1.VolumeAttachment) string { return o.Name })
	case PersistentVolume:
		prefix = "pv/"
		l, _ := kube.CoreV1().PersistentVolumes().List(ctx, all)
		names = namesOf(l.Items, func(o *corev1.PersistentVolume) string { return o.Name })
	case PersistentVolumeClaim:
		prefix = "pvc/" + q.Namespace + "/"
		l, _ := kube.CoreV1().PersistentVolumeClaims(q.Namespace).List(ctx, all)
		names = namesOf(l.Items, func(o *corev1.PersistentVolumeClaim) string { return o.Name })
	case Pod:
		prefix = "pod/" + q.Namespace + "/"
		l, _ := kube.CoreV1().Pods(q.Namespace).List(ctx, all)
		names = namesOf(l.Items, func(o *corev1.Pod) string { return o.Name })
	case Node:
		prefix = "node/"
		l, _ := kube.CoreV1().Nodes().List(ctx, all)
		names = namesOf(l.Items, func(o *corev1.Node) string { return o.Name })
	case Driver:
		prefix = "driver/"
		for _, d := range g.facts.Hub.View.Drivers {
			names = append(names, d.Name)
		}
		l, _ := kube.StorageV1().CSIDrivers().List(ctx, all)
		names = append(names, namesOf(l.Items, func(o *storagev1.CSIDriver) string { return o.Name })...)
	}
	for _, name := range nearest(q.Name, names, mostSimilar) {
		found = append(found, prefix+name)
	}
	return found
}

func namesOf[T any](items []T, name func(*T) string) []string {
	names := make([]string, len(items))
	for i := range items {
		names[i] = name(&items[i])
	}
	return names
}

// nearest returns the names that are most similar to a text, at most n: those with few edits, then those that begin with
// the text.
func nearest(text string, names []string, n int) []string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	var found []string
	for len(found) < n {
		name, ok := registry.Nearest(text, names)
		if !ok {
			break
		}
		found = append(found, name)
		names = slices.DeleteFunc(names, func(other string) bool { return other == name })
	}
	for _, name := range names {
		if len(found) < n && strings.HasPrefix(name, text) {
			found = append(found, name)
		}
	}
	return found
}
