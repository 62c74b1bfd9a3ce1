package drift

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	driverName = "block.csi.example.com"
	finalizer  = "external-attacher/block-csi-example-com"
)

var lister = attach.Driver{Name: driverName, Capabilities: csiclient.Capabilities{PublishUnpublish: true, ListPublishedNodes: true}}

func ptr[T any](v T) *T { return &v }

// attachment returns a new VolumeAttachment of pv-1 on node-1, changed by edits.
func attachment(edits ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-1", UID: "uid-1"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driverName,
			NodeName: "node-1",
			Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr("pv-1")},
		},
	}
	for _, edit := range edits {
		edit(va)
	}
	return va
}

func attached(va *storagev1.VolumeAttachment) { va.Status.Attached = true }
func guarded(va *storagev1.VolumeAttachment)  { va.Finalizers = append(va.Finalizers, finalizer) }
func deleted(va *storagev1.VolumeAttachment)  { va.DeletionTimestamp = ptr(metav1.Now()) }

func annotated(key, value string) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) {
		metav1.SetMetaDataAnnotation(&va.ObjectMeta, key, value)
	}
}

func finalizers(names ...string) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) { va.Finalizers = names }
}

func inline(spec *corev1.PersistentVolumeSpec) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) {
		va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: spec}
	}
}

// volume returns a ReadWriteOnce PersistentVolume pv-1 with the handle vol-1.
func volume(edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-1", UID: "pv-uid-1"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "vol-1"}},
		},
	}
	for _, edit := range edits {
		edit(pv)
	}
	return pv
}

// csiNode returns node-1 on which the driver calls itself nodeID.
func csiNode(nodeID string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: nodeID}}},
	}
}

// on is a volume that is listed as published on the nodes.
func on(nodeIDs ...string) csiclient.PublishedNodes { return csiclient.PublishedNodes{IDs: nodeIDs} }

// world is all that a Watch needs. A listing that is nil fails.
type world struct {
	t       *testing.T
	watch   *Watch
	listed  csiclient.Published
	during  func() // a listing
	changed map[attach.Target]bool
	working map[string]bool
	node    *corev1.Node

	listings                   int
	missing, present, dangling []string // what the Actions were called with
}

func newWorld(t *testing.T, driver attach.Driver, objects ...any) *world {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := cache.New(kube)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, during: func() {}, node: &corev1.Node{}}
	w.watch = &Watch{Driver: func() attach.Driver { return driver }, Settings: func() registry.Drift { return registry.Drift{Unexpected: registry.UnexpectedDetach} },
		Session: func() Session { return w }, Cluster: cluster, View: cache.NewOverlay(klog.Background(), cluster), Queue: w,
		KnowsAll: func(context.Context) (bool, error) { return true, nil }, Actions: w, Logger: klog.Background(),
		Nodes: &Nodes{Read: func(context.Context, string) (*corev1.Node, error) { return w.node, nil }}}
	w.put(objects...)
	return w
}

// put stores objects, of which the world keeps copies.
func (w *world) put(objects ...any) {
	w.t.Helper()
	for _, obj := range objects {
		switch o := obj.(type) {
		case *storagev1.VolumeAttachment:
			obj = o.DeepCopy()
		case *corev1.PersistentVolume:
			obj = o.DeepCopy()
		}
		if err := w.watch.Cluster.Put(obj); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) remove(obj any) {
	w.t.Helper()
	if err := w.watch.Cluster.Remove(obj); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ListVolumes(context.Context, int) (csiclient.Published, time.Duration, error) {
	w.listings++
	w.during()
	if w.listed == nil {
		return nil, 0, errors.New("no list")
	}
	return w.listed, time.Second, nil
}

func (w *world) Listing() (func(attach.Target) bool, func()) {
	return func(at attach.Target) bool { return w.changed[at] }, func() {}
}

func (w *world) Has(name string) bool { return w.working[name] }

func (w *world) Listed(func(attach.Target) (listed, there bool), time.Time) {}

func (w *world) Missing(va *storagev1.VolumeAttachment, isNew bool) {
	w.missing = append(w.missing, map[bool]string{true: "new ", false: ""}[isNew]+va.Name)
}

func (w *world) Present(_ context.Context, va *storagev1.VolumeAttachment) {
	w.present = append(w.present, va.Name)
}

func (w *world) Dangling(d *Dangling, kept string) {
	w.dangling = append(w.dangling, map[bool]string{true: "detach", false: "kept because " + kept}[kept == ""])
}
