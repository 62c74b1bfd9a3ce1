package cache

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

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
	must(t, err)
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
			must(t, put(c, deleting))
			answer := deleting.DeepCopy()
			answer.Finalizers = nil
			reported := func() {
				must(t, removeFrom(c, deleting))
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
			must(t, put(c, attachment("uid-2", "20")))
			if va := o.Attachment("va"); va == nil || va.UID != "uid-2" {
				t.Errorf("got %v, want the next VolumeAttachment of the name", va)
			}
			if len(o.deleted) != 0 {
				t.Errorf("%v is remembered, want nothing", o.deleted)
			}
		})
	}
}

// A thousand VolumeAttachments with publish contexts of 256 KiB in one answer would take a gigabyte.
func TestVolumeAttachmentsAreListedInPagesWithoutTheirMetadata(t *testing.T) {
	var asked metav1.ListOptions
	list := inPages(func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		asked = o
		return &storagev1.VolumeAttachmentList{Items: []storagev1.VolumeAttachment{{
			Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"k": "large"}},
		}}}, nil
	})
	for _, tc := range []struct{ ask, want metav1.ListOptions }{
		{metav1.ListOptions{Limit: 500, ResourceVersion: "0"}, metav1.ListOptions{Limit: listPage}},
		{metav1.ListOptions{Limit: 500, Continue: "token"}, metav1.ListOptions{Limit: listPage, Continue: "token"}},
		{metav1.ListOptions{ResourceVersion: "7"}, metav1.ListOptions{ResourceVersion: "7"}}, // all, after the token has expired
	} {
		listed, err := list(t.Context(), tc.ask)
		must(t, err)
		if asked != tc.want {
			t.Errorf("asked for %+v, want %+v", asked, tc.want)
		}
		if va := listed.(*storagev1.VolumeAttachmentList).Items[0]; va.Status.AttachmentMetadata != nil || !va.Status.Attached {
			t.Errorf("listed %+v", va.Status)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
