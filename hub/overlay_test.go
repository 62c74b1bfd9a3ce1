package hub

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
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
	if err := d.cluster.put(deleting); err != nil {
		t.Fatal(err)
	}
	if op, _ := d.wanted("va"); op != attach.Detaching {
		t.Fatalf("%s is wanted, want a detach", op)
	}
	answer := deleting.DeepCopy()
	answer.Finalizers = []string{"somebody.else/s"}
	answer.ResourceVersion = "11"
	d.overlay.VolumeAttachmentWritten(answer.DeepCopy())
	if d.overlay.attachment("va") == nil {
		t.Error("it is taken for gone though somebody else's finalizer is there")
	}
	answer.Finalizers, answer.ResourceVersion = nil, deleting.ResourceVersion
	d.overlay.VolumeAttachmentWritten(answer)
	if op, _ := d.wanted("va"); op != attach.Idle || d.overlay.attachment("va") != nil {
		t.Errorf("%s is wanted of what is gone", op)
	}
	if err := d.cluster.remove(deleting); err != nil {
		t.Fatal(err)
	}
	d.routes.attachmentGone(deleting)
	d.overlay.VolumeAttachmentWritten(answer.DeepCopy()) // the watch may be quicker than the answer
	next := routedAttachment(func(va *storagev1.VolumeAttachment) { va.UID, va.ResourceVersion = "uid-2", "20" })
	if err := d.cluster.put(next); err != nil {
		t.Fatal(err)
	}
	if va := d.overlay.attachment("va"); va == nil || va.UID != "uid-2" || len(d.overlay.ended) != 0 {
		t.Errorf("got %v, want the next one of that name, and nothing remembered of the one before", va)
	}
}
