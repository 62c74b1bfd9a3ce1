package tests

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// beforeFirst has f called right before the first request of a kind takes effect, with
// the watch of VolumeAttachments held.
func (v *virtual) beforeFirst(want fakekube.Request, f func()) {
	once := sync.OnceFunc(func() {
		v.api.HoldWatches("volumeattachments")
		f()
	})
	v.api.Intercept(func(r fakekube.Request) int {
		if r == want {
			once()
		}
		return 0
	})
}

// The error goes with a write of the drift check, whose answer shows the deletion: the hub took that for known.
func TestDeletionThatComesWithTheAnswerToAWriteIsNotMissed(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		got := v.get(va.Name)
		got.Status.AttachError = &storagev1.VolumeError{Time: metav1.Now(), Message: "of before"}
		if _, err := v.kube.StorageV1().VolumeAttachments().UpdateStatus(v.t.Context(), got, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.beforeFirst(fakekube.Request{Verb: "patch", Resource: "volumeattachments/status", Name: va.Name}, func() { v.delete(va) })
		v.pass(4 * time.Minute)
		if got := v.get(va.Name); got == nil || got.DeletionTimestamp == nil || got.Status.AttachError != nil {
			t.Fatalf("%+v, want it without the error and deleted", got)
		}
		v.api.ReleaseWatches("volumeattachments")
		v.pass(time.Second)
		if v.get(va.Name) != nil || len(v.backend.Books().Attached) > 0 {
			t.Errorf("VolumeAttachment there: %v, attached %v; want it detached at once", v.get(va.Name) != nil, v.backend.Books().Attached)
		}
	})
}

// 120 calls in a minute, all counted as successes.
func TestAttachOfAVolumeAttachmentThatHasVanishedIsNotRepeated(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		va := v.attachment("v", "n")
		v.beforeFirst(fakekube.Request{Verb: "patch", Resource: "volumeattachments/status", Name: va.Name}, func() {
			v.stripFinalizers(va.Name)
			v.delete(va)
		})
		v.create(va)
		v.pass(5 * time.Minute)
		v.api.ReleaseWatches("volumeattachments")
		v.pass(5 * time.Minute)
		published, unpublished := v.calls(fakecsi.ControllerPublishVolume, "v", "id-n"), v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n")
		if published != 1 || unpublished != 1 {
			t.Errorf("%d calls to attach and %d to detach, want one of each", published, unpublished)
		}
		if n := v.metric("attach_hub_operations_total", "attach", "success"); n != 0 {
			t.Errorf("%v attaches counted as successful, want none", n)
		}
	})
}

// A relist makes an Update of the end of one object and the begin of another: what the first has left attached was
// looked at by nobody.
func TestNewObjectOfTheSameNameAfterAMissedDeletionIsAnotherOne(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		stop := v.start()
		va := v.attached()
		stop()
		v.start() // it remembers nothing
		v.pass(time.Second)
		v.register("other", "id-other")
		v.api.HoldWatches("volumeattachments")
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}}})
		v.stripFinalizers(va.Name)
		v.delete(va)
		again := va
		again.Node = "other"
		v.create(again)
		v.api.ForgetEvents()
		v.api.ReleaseWatches("volumeattachments")
		v.pass(10 * time.Minute)
		if v.backend.Books().IsAttached("v", "id-n") {
			t.Error("what the old object has left attached stays so")
		}
		v.delete(again, testbed.PersistentVolume{Name: "v"})
	})
}
