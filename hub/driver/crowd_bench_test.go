package driver

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	crowdDrivers = 100
	crowdVolumes = 100 // of each driver
)

// crowdSize is the size of a hubCrowd.
type crowdSize struct {
	drivers, nodes int
	volumes        int // of each driver
}

// hubCrowd is a hub with many drivers that work, and with caches full of attached volumes
// that nobody watches.
type hubCrowd struct {
	view.View
	options     *Options
	cluster     *cache.Cluster
	size        crowdSize
	metrics     *status.Metrics
	drivers     []*lifecycle
	attachments []*storagev1.VolumeAttachment
	volumes     []*attach.Volume
}

func newHubCrowd(b *testing.B, size crowdSize) *hubCrowd {
	b.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	cluster := cache.New(kube)
	c := &hubCrowd{size: size, metrics: status.NewMetrics(), cluster: cluster}
	looks := map[string]func() view.Driver{}
	c.View = view.View{Cluster: cluster, Served: func() map[string]func() view.Driver { return looks }}
	c.options = &Options{Kube: kube, Metrics: c.metrics, Cluster: cluster, View: &c.View,
		Routes: &reconcile.Router{Cluster: cluster, Elsewhere: func(*storagev1.VolumeAttachment) {}}}
	for i := range size.drivers {
		looks[fmt.Sprintf("driver-%d.csi.example.com", i)] = c.addDriver(fmt.Sprintf("driver-%d.csi.example.com", i)).Look
	}
	for i := range size.drivers * size.volumes {
		c.addVolume(i)
	}
	if err := cachetest.Put(c.cluster, objects(c.attachments)...); err != nil {
		b.Fatal(err)
	}
	if err := cachetest.Put(c.cluster, objects(c.volumes)...); err != nil {
		b.Fatal(err)
	}
	return c
}

func objects[T any](of []T) []any {
	all := make([]any, len(of))
	for i, o := range of {
		all[i] = o
	}
	return all
}

// addDriver adds a driver that can be called.
func (c *hubCrowd) addDriver(name string) *Manager {
	value := registry.Driver{Name: name, Endpoint: registry.Endpoint("unix:///csi/" + name + "/csi.sock"), Settings: registry.DefaultSettings()}
	m := New(c.options, klog.Background(), value, reconcile.NewMemory(klog.Background(), name, c.cluster))
	d := m.newLifecycle(lease.Always(), m.Panicked)
	m.update(func(s *state) { s.leader = d })
	d.driver.Queue.Open()
	c.drivers = append(c.drivers, d)
	return m
}

// addVolume adds an attached volume of one of the drivers, as the API server has them.
func (c *hubCrowd) addVolume(i int) {
	d := c.drivers[i%len(c.drivers)]
	name := fmt.Sprintf("pvc-%032d", i)
	va := writtenAttachment(name, d.driver.Driver, c.node(i))
	d.driver.Table.Open(va)
	c.attachments, c.volumes = append(c.attachments, va), append(c.volumes, attach.VolumeOf(writtenVolume(name, d.driver.Driver)))
}

// node returns the name of the node of a volume. The volumes of a node are of several drivers.
func (c *hubCrowd) node(volume int) string {
	return fmt.Sprintf("node-%d", (volume+volume/c.size.nodes)%c.size.nodes)
}

// writtenVolume is a PersistentVolume whose VolumeAttachment is a writtenAttachment.
func writtenVolume(name, driver string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: []string{attach.Finalizer(driver)}},
		Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}}}}
}

// writtenAttachment is an attached VolumeAttachment with all that the API server sends.
func writtenAttachment(persistentVolume, driver, node string) *storagev1.VolumeAttachment {
	finalizer := attach.Finalizer(driver)
	at := metav1.Now()
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "storage.k8s.io/v1",
			Time: &at, FieldsType: "FieldsV1", Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + persistentVolume, UID: types.UID("uid-" + persistentVolume), ResourceVersion: "12345", CreationTimestamp: at,
			Finalizers:  []string{finalizer},
			Annotations: map[string]string{attach.AnnotationNodeID: "i-" + node, attach.AnnotationVolumeHandle: persistentVolume},
			ManagedFields: []metav1.ManagedFieldsEntry{
				entry("kube-controller-manager", "", `{"f:spec":{"f:attacher":{},"f:nodeName":{},"f:source":{"f:persistentVolumeName":{}}}}`),
				entry(attach.FieldManager, "", `{"f:metadata":{"f:annotations":{".":{},"f:`+attach.AnnotationVolumeHandle+`":{},"f:`+attach.AnnotationNodeID+`":{}},"f:finalizers":{".":{},"v:\"`+finalizer+`\"":{}}}}`),
				entry(attach.FieldManager, "status", `{"f:status":{"f:attached":{},"f:attachmentMetadata":{".":{},"f:devicePath":{}}}}`),
			}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &persistentVolume}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"devicePath": "/dev/xvda"}},
	}
}

// sharedCrowd is made once: it takes its time.
var sharedCrowd = sync.OnceValue(func() *hubCrowd {
	return newHubCrowd(&testing.B{}, crowdSize{drivers: crowdDrivers, volumes: crowdVolumes, nodes: 50})
})

// changed is a later state of a VolumeAttachment.
func changed(va *storagev1.VolumeAttachment, change func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	va = va.DeepCopy()
	va.ResourceVersion = "12346"
	change(va)
	return va
}

func BenchmarkRouteEventOfWhatHasNothingToDo(b *testing.B) {
	c := sharedCrowd()
	before := c.attachments[0]
	after := changed(before, func(*storagev1.VolumeAttachment) {})
	attachments := c.options.Routes.Handlers().Attachments
	b.ReportAllocs()
	for b.Loop() {
		attachments.OnUpdate(before, after)
	}
}

func BenchmarkRouteEventThatAsksForWork(b *testing.B) {
	c := sharedCrowd()
	before := c.attachments[0]
	now := metav1.Now()
	after := changed(before, func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &now })
	attachments := c.options.Routes.Handlers().Attachments
	ran := make(chan struct{})
	go c.drivers[0].driver.Queue.Run(b.Context(), func(e *queue.Item) {
		c.drivers[0].driver.Queue.End(e, queue.Finished)
		ran <- struct{}{}
	})
	if err := cachetest.Put(c.cluster, after); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cachetest.Put(c.cluster, before) }()
	b.ReportAllocs()
	for b.Loop() {
		attachments.OnUpdate(before, after)
		<-ran
	}
}

func BenchmarkRouteEventOfAVolume(b *testing.B) {
	c := sharedCrowd()
	volumes := c.options.Routes.Handlers().Volumes
	b.ReportAllocs()
	for b.Loop() {
		volumes.OnUpdate(c.volumes[0], c.volumes[0])
	}
}

func BenchmarkLookUpByIndex(b *testing.B) {
	c := sharedCrowd()
	b.ReportAllocs()
	for b.Loop() {
		if n := len(c.cluster.AttachmentsOfVolume(c.volumes[7].Name)); n != 1 {
			b.Fatalf("%d VolumeAttachments of a volume, want 1", n)
		}
	}
}

func BenchmarkBackfill(b *testing.B) {
	d := sharedCrowd().drivers[3]
	b.ReportAllocs()
	for b.Loop() {
		d.work.LookAtAll()
	}
}

func BenchmarkLookForStuckVolumeAttachments(b *testing.B) {
	d := sharedCrowd().drivers[3]
	b.ReportAllocs()
	for b.Loop() {
		d.work.ReportOverdue(b.Context())
	}
}

func BenchmarkViewOfDrivers(b *testing.B) {
	c := sharedCrowd()
	b.ReportAllocs()
	for b.Loop() {
		if n := len(c.Drivers()); n != crowdDrivers {
			b.Fatalf("%d drivers", n)
		}
	}
}

func BenchmarkViewOfVolumeAttachments(b *testing.B) {
	c := sharedCrowd()
	b.ReportAllocs()
	for b.Loop() {
		if n := len(c.Attachments(status.AttachmentFilter{})); n != crowdDrivers*crowdVolumes {
			b.Fatalf("%d VolumeAttachments", n)
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	c := sharedCrowd()
	gatherer := c.metrics.Gatherer(crowdSource{&c.View})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gatherer.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

// crowdSource is a hub as its status package sees it.
type crowdSource struct{ *view.View }

func (c crowdSource) Overview() (o status.Overview) {
	o.Unserved, o.UnservedSince = c.Unserved()
	return o
}
