package cache

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
)

// unwatched returns caches that nobody fills.
func unwatched(t *testing.T) *Cluster {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	c := New(kube)
	return c
}

// The answer to the write that takes the last finalizer may come before the watch reports the deletion, or after.
func TestDeletionByAnOwnWriteIsRememberedUntilTheWatchReportsIt(t *testing.T) {
	for name, answerFirst := range map[string]bool{"answer first": true, "watch first": false} {
		t.Run(name, func(t *testing.T) {
			c := unwatched(t)
			o := NewOverlay(ktesting.NewLogger(t, ktesting.NewConfig()), c)
			attachment := func(uid types.UID, version string) *storagev1.VolumeAttachment {
				return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", UID: uid, ResourceVersion: version, Finalizers: []string{"f"}}}
			}
			deleting := attachment("uid-1", "10")
			deleting.DeletionTimestamp = &metav1.Time{}
			if err := put(c, deleting); err != nil {
				t.Fatal(err)
			}
			answer := deleting.DeepCopy()
			answer.Finalizers = nil
			reported := func() {
				if err := removeFrom(c, deleting); err != nil {
					t.Fatal(err)
				}
				o.VolumeAttachmentDeleted(deleting)
			}
			if answerFirst {
				o.VolumeAttachmentWritten(answer)
				if va := o.Attachment("va"); va != nil {
					t.Errorf("before the watch reports the deletion: got %v, want none", va)
				}
				reported()
			} else {
				reported()
				o.VolumeAttachmentWritten(answer)
			}
			if err := put(c, attachment("uid-2", "20")); err != nil {
				t.Fatal(err)
			}
			if va := o.Attachment("va"); va == nil || va.UID != "uid-2" {
				t.Errorf("got %v, want the next VolumeAttachment of the name", va)
			}
			if len(o.deleted) != 0 {
				t.Errorf("%v is remembered, want nothing", o.deleted)
			}
		})
	}
}
