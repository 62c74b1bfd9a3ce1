package cache

import (
	"fmt"
	"runtime"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// BenchmarkFootprintOfVolumeAttachments reports the bytes that an attached VolumeAttachment takes in the cache, indexes included.
func BenchmarkFootprintOfVolumeAttachments(b *testing.B) {
	const count = 50_000
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
		if err != nil {
			b.Fatal(err)
		}
		c, err := New(kube)
		if err != nil {
			b.Fatal(err)
		}
		before := inUse()
		for i := range count {
			whole := writtenAttachment(fmt.Sprintf("pvc-%036d", i), fmt.Sprintf("driver-%d.csi.example.com", i%10))
			whole.Spec.NodeName = fmt.Sprintf("node-%d.compute.internal", i%2500)
			text, err := whole.Marshal()
			if err != nil {
				b.Fatal(err)
			}
			var va storagev1.VolumeAttachment
			if err := va.Unmarshal(text); err != nil {
				b.Fatal(err)
			}
			if err := c.Put(&va); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(inUse()-before)/count, "B/object")
		runtime.KeepAlive(c)
	}
}
