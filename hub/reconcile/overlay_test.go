package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
)

// The API server answers the write that ends an object with no newer resourceVersion. On
// a busy machine the watch lags by more than the pause after which the work is looked at
// again, and the volume was detached twice.
func TestVolumeAttachmentThatAWriteHasEndedIsGoneHoweverLateTheWatchIs(t *testing.T) {
	d := routed(t)
	deleting := routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) {
		now := metav1.Now()
		va.DeletionTimestamp = &now
	})
	must(t, cachetest.Put(d.Cluster, deleting))
	if op, _ := d.required("va"); op != attach.Detaching {
		t.Fatalf("%s is required, want a detach", op)
	}
	answer := deleting.DeepCopy()
	answer.Finalizers = []string{"somebody.else/s"}
	answer.ResourceVersion = "11"
	d.Overlay.VolumeAttachmentWritten(answer.DeepCopy())
	if d.Overlay.Attachment("va") == nil {
		t.Error("it is taken for gone though somebody else's finalizer is there")
	}
	answer.Finalizers, answer.ResourceVersion = nil, deleting.ResourceVersion
	d.Overlay.VolumeAttachmentWritten(answer)
	if op, _ := d.required("va"); op != attach.Idle || d.Overlay.Attachment("va") != nil {
		t.Errorf("%s is required of what is gone", op)
	}
	must(t, cachetest.Remove(d.Cluster, deleting))
	d.router.onAttachment(deleting, nil, false)
	d.Overlay.VolumeAttachmentWritten(answer.DeepCopy()) // the watch may be quicker than the answer
	next := routedAttachment(func(va *storagev1.VolumeAttachment) { va.UID, va.ResourceVersion = "uid-2", "20" })
	must(t, cachetest.Put(d.Cluster, next))
	if va := d.Overlay.Attachment("va"); va == nil || va.UID != "uid-2" {
		t.Errorf("got %v, want the next one of that name", va)
	}
}

// What is written is laid over the cache until the watch has told of it, and takes memory for so long.
func TestWriteThatTookTheFinalizerIsForgottenWithItsEvent(t *testing.T) {
	before := guardedVolume()
	after := guardedVolume(func(pv *corev1.PersistentVolume) { pv.ResourceVersion, pv.Finalizers = "8", nil })
	last := guardedVolume(func(pv *corev1.PersistentVolume) { pv.ResourceVersion = "8" }) // as a deletion tells it
	for name, event := range map[string]func(*Router){
		"changed": func(r *Router) { r.onVolume(stored(before), stored(after), false) },
		"gone":    func(r *Router) { r.onVolume(stored(last), nil, false) },
		"missed": func(r *Router) {
			r.Handlers().Volumes.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "pv", Obj: stored(last)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			d.Overlay.PersistentVolumeWritten(stored(after))
			event(d.router)
			// The cache is still at the state before: what the overlay shows is what it has kept.
			must(t, cachetest.Put(d.Cluster, stored(before)))
			if pv := d.Overlay.Volume("pv"); pv == nil || pv.ResourceVersion != "7" {
				t.Errorf("the write is kept: %v", pv)
			}
		})
	}
}
