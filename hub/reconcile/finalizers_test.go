package reconcile

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// The VolumeAttachment is gone, and a worker may still detach its volume: handle and Secret are in the PersistentVolume.
func TestFinalizerOfAPersistentVolumeWaitsForAnAttachmentWhoseObjectIsGone(t *testing.T) {
	inExecution(t, nil, func(x *executing) {
		volumes := x.kube.CoreV1().PersistentVolumes()
		pv := guardedVolume(func(pv *corev1.PersistentVolume) {
			pv.Name, pv.ResourceVersion, pv.Finalizers = "other", "", []string{x.Table.Finalizer}
		})
		if _, err := volumes.Create(x.t.Context(), pv, metav1.CreateOptions{}); err != nil {
			x.t.Fatal(err)
		}
		must(x.t, volumes.Delete(x.t.Context(), pv.Name, metav1.DeleteOptions{}))
		pv, err := volumes.Get(x.t.Context(), pv.Name, metav1.GetOptions{})
		must(x.t, err)
		must(x.t, cachetest.Put(x.Cluster, stored(pv)))
		gone := routedAttachment(func(va *storagev1.VolumeAttachment) {
			va.Name, va.UID, va.Spec.Source.PersistentVolumeName = "gone", "uid-gone", &pv.Name
		})
		x.Table.Open(gone)
		x.Queue.Add(queue.FinalizerKey(pv.Name), queue.FinalizerLane, queue.Destination{})
		x.Work(x.t.Context(), x.start(x.t))
		if _, err := volumes.Get(x.t.Context(), pv.Name, metav1.GetOptions{}); err != nil {
			x.t.Fatalf("the PersistentVolume is gone while its volume may be being detached: %v", err)
		}
		x.Table.Missing(gone.Name, gone.UID)
		time.Sleep(x.Settings().Retry.Max)
		x.Work(x.t.Context(), x.start(x.t))
		if _, err := volumes.Get(x.t.Context(), pv.Name, metav1.GetOptions{}); err == nil {
			x.t.Error("the PersistentVolume is there when the attachment has ended")
		}
	})
}
