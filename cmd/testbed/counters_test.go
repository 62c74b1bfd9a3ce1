package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// seen is a VolumeAttachment in one of its states.
func seen(uid string, change func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va", UID: types.UID(uid)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "d"},
	}
	if change != nil {
		change(va)
	}
	return va
}

func TestCountersFollowAVolumeAttachmentThroughItsLife(t *testing.T) {
	created := seen("1", nil)
	failing := seen("1", func(va *storagev1.VolumeAttachment) { va.Status.AttachError = &storagev1.VolumeError{} })
	attached := seen("1", func(va *storagev1.VolumeAttachment) { va.Status.Attached = true })
	deleting := seen("1", func(va *storagev1.VolumeAttachment) {
		va.Status.Attached = true
		va.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		va.Status.DetachError = &storagev1.VolumeError{}
	})
	again := seen("2", func(va *storagev1.VolumeAttachment) { va.Status.Attached = true })
	once := took{N: 1, P50: 3 * time.Second, P99: 3 * time.Second}
	steps := []struct {
		name     string
		was, now *storagev1.VolumeAttachment
		calls    int
		want     row
	}{
		{"created", nil, created, 0, row{Waiting: 2}},
		{"called for", created, created, 1, row{Waiting: 1, Attaching: 1}},
		{"failing", created, failing, 0, row{Waiting: 2, Failing: 1, Failed: 1}},
		{"attached", failing, attached, 0, row{Waiting: 1, Attached: 1, Failed: 1, Took: once}},
		{"more calls than volumes", attached, attached, 3, row{Attaching: 1, Attached: 1, Failed: 1, Took: once}},
		{"being deleted", attached, deleting, 0, row{Waiting: 1, Detaching: 1, Failing: 1, Failed: 1, Took: once}},
		{"made again unseen", deleting, again, 0, row{Waiting: 1, Attached: 1, Failed: 1, Took: once}},
		{"gone", again, nil, 0, row{Waiting: 2, Failed: 1, Took: once}},
	}
	counters := newCounters([]string{"d"})
	counters.expect(map[string]int{"d": 2})
	at := time.Unix(100, 0)
	for _, s := range steps {
		counters.inFlight("d", s.calls)
		counters.observe(at, s.was, s.now)
		at = at.Add(time.Second)
		s.want.Driver = "d"
		if diff := cmp.Diff([]row{s.want}, counters.rows()); diff != "" {
			t.Errorf("%s: -want +got\n%s", s.name, diff)
		}
	}
	if got := counters.times(func(d string) bool { return d == "d" }); got != once {
		t.Errorf("times %+v", got)
	}
	if got := counters.times(func(d string) bool { return d != "d" }); got != (took{}) {
		t.Errorf("times of no driver %+v", got)
	}
}
