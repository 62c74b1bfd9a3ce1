package cache

import (
	"context"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

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
		if err != nil {
			t.Fatal(err)
		}
		if asked != tc.want {
			t.Errorf("asked for %+v, want %+v", asked, tc.want)
		}
		if va := listed.(*storagev1.VolumeAttachmentList).Items[0]; va.Status.AttachmentMetadata != nil || !va.Status.Attached {
			t.Errorf("listed %+v", va.Status)
		}
	}
}
