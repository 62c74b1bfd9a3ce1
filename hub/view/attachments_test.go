package view

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A csi-attacher that serves a driver detaches, attaches, or writes an error at least every few minutes.
func TestVolumeAttachmentThatNobodyWorksOnIsToldFromOneOfABusyAttacher(t *testing.T) {
	at := func(minute int) metav1.Time {
		return metav1.NewTime(time.Unix(0, 0).Add(time.Duration(minute) * time.Minute))
	}
	failed := func(minute int) *storagev1.VolumeError {
		return &storagev1.VolumeError{Time: at(minute), Message: "no"}
	}
	none, deleted := -1, at(10)
	for name, test := range map[string]struct {
		change func(va *storagev1.VolumeAttachment)
		want   int // minute, or none
	}{
		"waits to be attached":     {func(*storagev1.VolumeAttachment) {}, 0},
		"attach fails":             {func(va *storagev1.VolumeAttachment) { va.Status.AttachError = failed(7) }, 7},
		"attached":                 {func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }, none},
		"attached, after an error": {func(va *storagev1.VolumeAttachment) { va.Status.Attached, va.Status.AttachError = true, failed(7) }, none},
		"deleted, never attached": {func(va *storagev1.VolumeAttachment) {
			va.DeletionTimestamp, va.Finalizers = &deleted, []string{"other"}
		}, none},
		"waits to be detached": {func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp, va.Status.Attached = &deleted, true }, 10},
		"deleted after a failed attach": {func(va *storagev1.VolumeAttachment) {
			va.DeletionTimestamp, va.Status.AttachError = &deleted, failed(12)
		}, 10},
		"detach fails": {func(va *storagev1.VolumeAttachment) {
			va.DeletionTimestamp, va.Status.DetachError = &deleted, failed(17)
		}, 17},
		"error is older than the request": {func(va *storagev1.VolumeAttachment) {
			va.DeletionTimestamp, va.Status.DetachError = &deleted, failed(3)
		}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := standby(t, attachmentOf("va", func(va *storagev1.VolumeAttachment) { va.CreationTimestamp = at(0) }, test.change))
			v.Served = func() map[string]func() Driver { return map[string]func() Driver{} }
			_, since := v.Unserved()
			got := since["d"]
			if test.want == none && !got.IsZero() || test.want != none && !got.Equal(at(test.want).Time) {
				t.Errorf("got %v, want minute %d", got, test.want)
			}
		})
	}
}

// A metric of unserved drivers would fire an alert while a hub cannot start.
func TestNoDriverCountsAsUnservedBeforeItIsKnownWhichAreServed(t *testing.T) {
	v, _ := standby(t, attachmentOf("va"))
	for served, want := range map[bool]int{true: 1, false: 0} {
		v.Served = func() map[string]func() Driver { return map[bool]map[string]func() Driver{true: {}}[served] }
		if counts, _ := v.Unserved(); len(counts) != want {
			t.Errorf("known %t: unserved %v", served, counts)
		}
	}
}
