package hub

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Events are for speed: what they miss must not wait for ever.
func TestResyncFindsWorkThatNoEventHasLedTo(t *testing.T) {
	d := routed(t)
	deleted := func(va *storagev1.VolumeAttachment) {
		va.Name, va.UID, va.DeletionTimestamp = "deleted", "uid-2", &metav1.Time{Time: time.Now()}
	}
	if err := d.cluster.Put(routedAttachment(), routedAttachment(guardedAttachment, deleted)); err != nil {
		t.Fatal(err)
	}
	d.ledger.open(routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) { va.Name = "vanished" }))
	d.resync(d.logger)
	for name, l := range map[string]lane{"va": attachLane, "deleted": detachLane, "vanished": detachLane} {
		if v, ok := d.queue.look(workKey{attachmentWork, name}); !ok || v.lane != l {
			t.Errorf("%s: there is work: %v, in lane %s, want it in %s", name, ok, v.lane, l)
		}
	}
	it := d.queue.items[workKey{attachmentWork, "va"}]
	it.since = it.since.Add(-time.Hour)
	before := it.since
	d.resync(d.logger)
	if it := d.queue.items[workKey{attachmentWork, "va"}]; it.since != before {
		t.Error("what is in the queue was asked for anew")
	}
}
