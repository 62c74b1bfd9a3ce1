package queue_test

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Otherwise the first detach after many failed attaches would wait as long as the next attach.
func TestFailuresOfAnAttachAreNotThoseOfTheDetach(t *testing.T) {
	var r queue.Retries
	began := time.Now()
	for i := range 5 {
		if n := r.Failed(attach.Attaching, began); n != i+1 {
			t.Errorf("%d failures in a row, want %d", n, i+1)
		}
	}
	later := began.Add(time.Hour)
	if n := r.Failed(attach.Detaching, later); n != 1 || !r.Since.Equal(later) {
		t.Errorf("%d failed detaches in a row since %v, want 1 since %v", n, r.Since, later)
	}
	if n := r.Failed(attach.Attaching, later); n != 1 {
		t.Errorf("%d failed attaches in a row, want 1", n)
	}
}
