package hub

import (
	"net/http"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// counted counts requests.
type counted struct {
	http.RoundTripper
	requests int
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests++
	return c.RoundTripper.RoundTrip(r)
}

// Another node has a call in flight for the volume: that it waits for its turn was written as an error.
func TestWaitingForTheTurnAtTheOldPlaceIsNoError(t *testing.T) {
	wire := &counted{RoundTripper: answers{}}
	d := routedOn(t, kubeOn(t, wire))
	d.connection.session.Store(&liveSession{Session: &unpublishing{}})
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: routedDriver, NodeID: "id-new"}}}}
	if err := d.cluster.Put(node); err != nil {
		t.Fatal(err)
	}
	leaving := func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	if err := d.cluster.Put(routedAttachment(guardedAttachment, leaving)); err != nil {
		t.Fatal(err)
	}
	if err := d.cluster.Put(stored(t, guardedVolume())); err != nil {
		t.Fatal(err)
	}
	d.queue.Open()
	d.queue.Add(workKey{attachmentWork, "other"}, detachLane)
	other, _ := d.queue.take(time.Now())
	d.queue.TakeTurn(other, "handle")
	d.queue.Add(workKey{attachmentWork, "va"}, detachLane)
	it, _ := d.queue.take(time.Now())
	d.workOnAttachment(t.Context(), it)
	if failures, text := d.ledger.failure("va"); it.state != parked || wire.requests != 0 || failures != 0 {
		t.Errorf("state %v after %d requests, %d failures %q; want it parked and nothing else", it.state, wire.requests, failures, text)
	}
}
