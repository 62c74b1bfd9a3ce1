package driver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// BenchmarkEventInALargeCluster reports percentiles of the time from the arrival of a decoded object at the caches until the
// handler of its event has returned. The object is trimmed, stored and indexed, and its driver found. Each event is of another
// object of 100,000, so little of it is in the caches of the processor.
func BenchmarkEventInALargeCluster(b *testing.B) {
	c := newHubCrowd(b, crowdSize{drivers: 10, volumes: 10_000, nodes: 5000})
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
func (c *hubCrowd) csiNode(i int) *storagev1.CSINode {
	name := fmt.Sprintf("node-%d", i)
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, d := range c.drivers {
		node.Spec.Drivers = append(node.Spec.Drivers, storagev1.CSINodeDriver{Name: d.driver.Driver, NodeID: "i-" + name})
	}
	return node
}

func (c *hubCrowd) put(b *testing.B, obj any) {
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
