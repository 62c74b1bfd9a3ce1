package drift

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
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

// newVolume returns a ReadWriteOnce PersistentVolume pv-1 with the handle vol-1.
func newVolume(edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
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
	t      *testing.T
	watch  *Watch
	table  *volume.Table
	drift  registry.Drift
	driver attach.Driver
	listed csiclient.Published
	during func() // a listing
	node   *corev1.Node

	listings          int
	missing, dangling []string // what Events were recorded
	forgotten         int      // errors, by writes
}

func newWorld(t *testing.T, driver attach.Driver, objects ...any) *world {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	must(t, err)
	cluster := cache.New(kube)
	w := &world{t: t, table: volume.NewTable(finalizer), drift: registry.Drift{Unexpected: registry.UnexpectedDetach}, driver: driver, during: func() {}, node: &corev1.Node{}}
	logger := klog.Background()
	w.watch = &Watch{
		Decider: func() attach.Driver { return w.driver }, Settings: func() registry.Settings { return registry.Settings{Drift: w.drift} },
		Session: func() Session { return w }, Cluster: cluster, Overlay: cache.NewOverlay(logger, cluster), Table: w.table,
		Nodes:         &Nodes{Read: func(context.Context, string) (*corev1.Node, error) { return w.node, nil }},
		KnowsAll:      func(context.Context) (bool, error) { return true, nil },
		DestinationOf: func(*storagev1.VolumeAttachment, attach.Operation) queue.Destination { return queue.Destination{} },
		Writer: func() attach.Attacher {
			w.forgotten++
			return attach.Attacher{Writer: attach.Writer{Kube: kube, Limit: func(context.Context) error { return errors.New("no writes") }}}
		},
		Metrics: status.NewMetrics().Driver(driverName), Warn: w.warn,
		Log: func(klog.Logger, bool, string, ...any) {}, Logger: logger,
		VolumeLogger: func(*storagev1.VolumeAttachment) klog.Logger { return logger }, DanglingLogger: func(volume.Dangling) klog.Logger { return logger },
	}
	w.table.Queue.Begin()
	w.put(objects...)
	return w
}

func (w *world) warn(object runtime.Object, _, message string) {
	switch o := object.(type) {
	case *storagev1.VolumeAttachment:
		w.missing = append(w.missing, o.Name)
	case *corev1.PersistentVolume:
		_, end, _ := strings.Cut(message, "; ")
		w.dangling = append(w.dangling, end)
	}
}

// check compares, and ends the detaches that it asks for.
func (w *world) check() {
	w.watch.Check(w.t.Context())
	for _, u := range w.table.AllDangling() {
		w.table.Resolve(u)
	}
}

// work begins work for va-1.
func (w *world) work() {
	w.table.Queue.Add(queue.AttachmentKey("va-1"), queue.DriftLane, queue.Destination{})
}

// rest ends all work.
func (w *world) rest() { w.table.Queue.Begin() }

func (w *world) isWorking() bool { return w.table.Queue.Has(queue.AttachmentKey("va-1")) }

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
		must(w.t, cachetest.Put(w.watch.Cluster, obj))
	}
}

func (w *world) remove(obj any) {
	w.t.Helper()
	must(w.t, cachetest.Remove(w.watch.Cluster, obj))
}

func (w *world) Ended() context.Context { return context.Background() }

func (w *world) ListVolumes(context.Context, int) (csiclient.Published, time.Duration, error) {
	w.listings++
	w.during()
	if w.listed == nil {
		return nil, 0, errors.New("no list")
	}
	return w.listed, time.Second, nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
