package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Otherwise the first detach after many failed attaches would wait as long as the next attach.
func TestFailuresOfAnAttachAreNotThoseOfTheDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(1, 0, true)
		e := taken(t, q, "va", queue.AttachLane, only("v", "n"))
		fail := func(op attach.Operation) int { return q.Failed(e, op, "no", diagnosis.Cause{}) }
		for i := range 5 {
			if n := fail(attach.Attaching); n != i+1 {
				t.Errorf("%d failures in a row, want %d", n, i+1)
			}
		}
		time.Sleep(time.Hour)
		if n := fail(attach.Detaching); n != 1 || !e.Retries.Since.Equal(time.Now()) {
			t.Errorf("%d failed detaches in a row since %v, want 1 since now", n, e.Retries.Since)
		}
		if n := fail(attach.Attaching); n != 1 {
			t.Errorf("%d failed attaches in a row, want 1", n)
		}
	})
}
