package driver

import (
	"fmt"
	"slices"
	"testing"
	"time"

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
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// BenchmarkEventInALargeCluster reports percentiles of the time from the arrival of a decoded object at the caches until the
// handler of its event has returned. The object is trimmed, stored and indexed, and its driver found. Each event is of another
// object of 100,000, so little of it is in the caches of the processor.
func BenchmarkEventInALargeCluster(b *testing.B) {
	c := newLargeHub(b, hubSize{drivers: 10, volumes: 10_000, nodes: 5000})
	handlers := c.options.Routes.Handlers()
	for i := range c.size.nodes {
		if err := cachetest.Put(c.cluster, c.csiNode(i)); err != nil {
			b.Fatal(err)
		}
	}
	attachmentEvent := func(change func(*storagev1.VolumeAttachment)) func(int) func() {
		return func(i int) func() {
			name := c.volumes[i].Name
			after := writtenAttachment(name, c.drivers[i%len(c.drivers)].driver.Driver, c.node(i))
			change(after)
			return func() {
				before := c.cluster.Attachment(after.Name)
				c.put(b, after)
				handlers.Attachments.OnUpdate(before, after)
			}
		}
	}
	b.Run("VolumeAttachment that needs nothing", func(b *testing.B) {
		reportEvents(b, len(c.volumes), attachmentEvent(func(*storagev1.VolumeAttachment) {}))
	})
	b.Run("PersistentVolume", func(b *testing.B) {
		reportEvents(b, len(c.volumes), func(i int) func() {
			name := c.volumes[i].Name
			pv := writtenVolume(name, c.drivers[i%len(c.drivers)].driver.Driver)
			return func() {
				before := c.cluster.Volume(name)
				after := attach.VolumeOf(pv)
				c.put(b, after)
				handlers.Volumes.OnUpdate(before, after)
			}
		})
	})
	b.Run("CSINode on which 10 drivers register", func(b *testing.B) {
		reportEvents(b, c.size.nodes, func(i int) func() {
			node := c.csiNode(i)
			return func() {
				c.put(b, node)
				handlers.Nodes.OnAdd(node, false)
			}
		})
	})
	now := metav1.Now()
	b.Run("VolumeAttachment that needs a detach", func(b *testing.B) { // last: these are in the queues from then on
		reportEvents(b, len(c.volumes), attachmentEvent(func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &now }))
	})
}

// csiNode is a CSINode on which all drivers are registered.
func (c *largeHub) csiNode(i int) *storagev1.CSINode {
	name := fmt.Sprintf("node-%d", i)
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, d := range c.drivers {
		node.Spec.Drivers = append(node.Spec.Drivers, storagev1.CSINodeDriver{Name: d.driver.Driver, NodeID: "i-" + name})
	}
	return node
}

func (c *largeHub) put(b *testing.B, obj any) {
	if err := cachetest.Put(c.cluster, obj); err != nil {
		b.Fatal(err)
	}
}

// reportEvents times events, each of the next of so many objects. event makes an event, and returns what is timed.
func reportEvents(b *testing.B, objects int, event func(i int) func()) {
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		handle := event(i % objects)
		began := time.Now()
		handle()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op") // it counts the making of events too
	for _, p := range []float64{50, 99, 99.9} {
		b.ReportMetric(float64(statistics.Percentile(took, p).Nanoseconds()), fmt.Sprintf("p%v-ns", p))
	}
}

// hubSize is the size of a largeHub.
type hubSize struct {
	drivers, nodes int
	volumes        int // of each driver
}

// largeHub is a hub with many drivers that work, and with caches full of attached volumes
// that nobody watches.
type largeHub struct {
	options     *Options
	cluster     *cache.Cluster
	size        hubSize
	drivers     []*lifecycle
	attachments []*storagev1.VolumeAttachment
	volumes     []*attach.Volume
}

func newLargeHub(b *testing.B, size hubSize) *largeHub {
	b.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	cluster := cache.New(kube)
	c := &largeHub{size: size, cluster: cluster}
	served := func() map[string]func() view.Driver { return nil }
	c.options = &Options{Kube: kube, Metrics: status.NewMetrics(), Cluster: cluster, View: &view.View{Cluster: cluster, Served: served},
		Routes: &reconcile.Router{Cluster: cluster, Elsewhere: func(*storagev1.VolumeAttachment) {}}}
	for i := range size.drivers {
		c.addDriver(fmt.Sprintf("driver-%d.csi.example.com", i))
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
func (c *largeHub) addDriver(name string) {
	value := registry.Driver{Name: name, Endpoint: registry.Endpoint("unix:///csi/" + name + "/csi.sock"), Settings: registry.DefaultSettings()}
	m := New(c.options, klog.Background(), value, reconcile.NewMemory(klog.Background(), name, c.cluster))
	d := m.newLifecycle(lease.Always(), m.Panicked)
	m.update(func(s *state) { s.leader = d })
	d.driver.Queue.Open()
	c.drivers = append(c.drivers, d)
}

// addVolume adds an attached volume of one of the drivers, as the API server has them.
func (c *largeHub) addVolume(i int) {
	d := c.drivers[i%len(c.drivers)]
	name := fmt.Sprintf("pvc-%032d", i)
	va := writtenAttachment(name, d.driver.Driver, c.node(i))
	d.driver.Table.Open(va)
	c.attachments, c.volumes = append(c.attachments, va), append(c.volumes, attach.VolumeOf(writtenVolume(name, d.driver.Driver)))
}

// node returns the name of the node of a volume. The volumes of a node are of several drivers.
func (c *largeHub) node(volume int) string {
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
