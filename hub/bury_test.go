package hub

import (
	"context"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
)

// Of a volume whose VolumeAttachment is gone nobody else knows. It was forgotten if the API server did not
// answer just when the driver was let go, because another VolumeAttachment seemed to have it.
func TestVolumeLeftAttachedIsKeptInMindIfNobodyTellsWhetherItIsWanted(t *testing.T) {
	d := routed(t) // its API server does not answer
	gone := routedAttachment(guardedAttachment)
	key := d.ledger.abandon(recordOf(d, gone))
	if err := d.cluster.attachments.GetIndexer().Add(routedAttachment(guardedAttachment)); err != nil {
		t.Fatal(err)
	}
	if d.wantedThere(d.ledger.orphan(key)) == nil {
		t.Fatal("no VolumeAttachment wants it there")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	d.bury(ended, key)
	if d.ledger.orphan(key) == nil {
		t.Error("it is forgotten")
	}
}

// recordOf is the record of a VolumeAttachment as if its volume had been attached.
func recordOf(d *driver, va *storagev1.VolumeAttachment) *record {
	r := d.ledger.open(va)
	r.progress.Adopt(va, nil, d.finalizer)
	return r
}
