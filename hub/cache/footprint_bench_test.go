package cache

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// footprint reports the bytes that each of many objects takes in the caches, indexes included.
func footprint[T any, P interface {
	*T
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}](b *testing.B, object func(i int) P) {
	const count = 50_000
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c := New(kube)
		before := inUse()
		for i := range count {
			text, err := object(i).Marshal()
			if err != nil {
				b.Fatal(err)
			}
			received := P(new(T)) // with texts of its own, as from the API server
			if err := received.Unmarshal(text); err != nil {
				b.Fatal(err)
			}
			if err := put(c, received); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(inUse()-before)/count, "B/object")
		runtime.KeepAlive(c)
	}
}

func BenchmarkFootprintOfVolumeAttachments(b *testing.B) {
	footprint(b, func(i int) *storagev1.VolumeAttachment {
		va := writtenAttachment(fmt.Sprintf("pvc-%036d", i), fmt.Sprintf("driver-%d.csi.example.com", i%10))
		va.Spec.NodeName = fmt.Sprintf("node-%d.compute.internal", i%2500)
		return va
	})
}

func BenchmarkFootprintOfPersistentVolumes(b *testing.B) {
	mode := corev1.PersistentVolumeFilesystem
	footprint(b, func(i int) *corev1.PersistentVolume {
		name, driver := fmt.Sprintf("pvc-%036d", i), fmt.Sprintf("driver-%d.csi.example.com", i%10)
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "12345", CreationTimestamp: metav1.Now(), Finalizers: []string{attach.Finalizer(driver)}},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode,
				ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data-" + name},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-" + name[30:], FSType: "ext4",
					VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1763730000000-8081-" + driver, "type": "ssd"}}},
			},
		}
	})
}
