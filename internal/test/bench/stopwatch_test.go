package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStopwatchTimesWhatWasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		va := func(name string, attached bool) *storagev1.VolumeAttachment {
			return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: storagev1.VolumeAttachmentStatus{Attached: attached}}
		}
		var w stopwatch
		w.reset(isAttached, 2)
		w.begin("a")
		time.Sleep(time.Second)
		w.begin("b")
		w.observe(nil, va("a", false))
		w.observe(nil, va("stranger", true))
		w.observe(va("b", false), va("b", true))
		time.Sleep(2 * time.Second)
		w.observe(va("a", false), va("a", true))
		time.Sleep(time.Second)
		w.observe(va("a", true), va("a", true))
		got, err := w.wait(t.Context(), "attached")
		if err != nil {
			t.Fatal(err)
		}
		want := timing{elapsed: 3 * time.Second, took: []time.Duration{0, 3 * time.Second}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(timing{})); diff != "" {
			t.Error(diff)
		}

		w.reset(isGone, 2)
		w.begin("a")
		w.begin("b")
		w.observe(va("a", true), va("a", false))
		w.observe(va("b", true), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.wait(ctx, "gone"); err == nil || !strings.Contains(err.Error(), "2 VolumeAttachments to be gone: 1 are") {
			t.Errorf("one is still there: %v", err)
		}
	})
}
