package hub

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

var routedDecider = attach.Driver{Name: routedDriver}

func lastOf(va *storagev1.VolumeAttachment) attach.Facts { return attach.Facts{VolumeAttachment: va} }

// Somebody else works for the driver, and may die before it sees what has vanished.
func TestStandbyRemembersWhatAVanishedAttachmentMayHaveLeftAttached(t *testing.T) {
	deleted := func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &metav1.Time{} }
	unguarded := func(va *storagev1.VolumeAttachment) { va.Finalizers = nil }
	attached := func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }
	unattached := func(va *storagev1.VolumeAttachment) { va.Status.Attached = false }
	withoutCall := func(va *storagev1.VolumeAttachment) { va.Annotations = nil }
	for name, c := range map[string]struct {
		gone     any
		observed bool // the driver is in mode observe
		want     bool
	}{
		"vanished with its finalizer":                     {routedAttachment(guardedAttachment), false, true},
		"vanished while observed":                         {routedAttachment(guardedAttachment), true, true},
		"its finalizer was taken while it was attached":   {routedAttachment(guardedAttachment, attached, unguarded), false, true},
		"attached by a driver without calls, and deleted": {routedAttachment(guardedAttachment, attached, unguarded, withoutCall), false, false},
		"detached and deleted":                            {routedAttachment(guardedAttachment, deleted), false, false},
		"never guarded":                                   {routedAttachment(guardedAttachment, unguarded, unattached), false, false},
		"deletion was missed":                             {toolscache.DeletedFinalStateUnknown{Key: "va", Obj: routedAttachment(guardedAttachment)}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			d.routes.close(d)
			l := newLedger(d.finalizer)
			h := &Hub{cluster: d.cluster, ledgers: map[string]*ledger{routedDriver: l}}
			d.routes.stray = h.witness
			if c.observed {
				queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
				defer queue.ShutDown()
				defer d.routes.observe(routedDriver, &observer{cluster: d.cluster, queue: queue})()
			}
			d.routes.attachmentGone(c.gone)
			l.forget() // what happens when a driver is taken over
			if got := len(l.takeOrphans()) == 1; got != c.want {
				t.Errorf("to be detached: %v, want %v", got, c.want)
			}
		})
	}
}

func TestStandbyForgetsWhatAnotherMustHaveSeenToByNow(t *testing.T) {
	l := newLedger(attach.Finalizer(routedDriver))
	began := time.Now()
	l.witness(routedDecider, lastOf(routedAttachment(guardedAttachment)), began)
	other := func(va *storagev1.VolumeAttachment) { va.Annotations[attach.AnnotationVolumeHandle] = "other" }
	l.witness(routedDecider, lastOf(routedAttachment(guardedAttachment, other)), began.Add(witnessedFor+1))
	if keys := l.takeOrphans(); len(keys) != 1 || keys[0] != orphanKey(attach.Target{VolumeHandle: "other", NodeID: "id"}) {
		t.Errorf("to be detached: %v, want the second only", keys)
	}
}

// The lease was lost, and another process had it, before a worker looked.
func TestWhatVanishedJustBeforeTheLeaseWasLostIsNotForgotten(t *testing.T) {
	l := newLedger(attach.Finalizer(routedDriver))
	for name, left := range map[string]bool{"left": true, "detached": false} {
		va := routedAttachment(guardedAttachment)
		va.Name = name
		va.Annotations[attach.AnnotationVolumeHandle] = name
		l.open(va)
		if left {
			l.adopt(routedDecider, lastOf(va))
		}
		l.vanish(name)
	}
	l.forget()
	if keys := l.takeOrphans(); len(keys) != 1 || keys[0] != orphanKey(attach.Target{VolumeHandle: "left", NodeID: "id"}) {
		t.Errorf("to be detached: %v, want what was left attached only", keys)
	}
	if names := l.names(); len(names) > 0 {
		t.Errorf("%v is remembered besides", names)
	}
}

// Nothing but the last state of the object told of the volume: the worker had not come to look at it, or had not been able to.
func TestWhatTheLastStateTellsIsNotLostOnARecordThatKnowsNothing(t *testing.T) {
	d := routed(t)
	va := routedAttachment(guardedAttachment)
	d.ledger.open(va) // for a drift that was found, say
	d.routes.attachmentGone(va)
	if key, left := d.ledger.close(va.Name); !left || key != orphanKey(attach.Target{VolumeHandle: "handle", NodeID: "id"}) {
		t.Errorf("to be detached: %v, %q", left, key.name)
	}
	// What was detached and let go here has the same last state.
	d.ledger.open(va)
	d.ledger.setReleased(va.UID, true)
	d.routes.attachmentGone(va)
	if _, left := d.ledger.close(va.Name); left {
		t.Error("a volume that was detached is taken for attached")
	}
	// Another one of that name is another one.
	other := routedAttachment(guardedAttachment)
	other.UID = "uid-2"
	d.ledger.open(other)
	d.routes.attachmentGone(va)
	if _, left := d.ledger.close(va.Name); left {
		t.Error("what another one of the name has attached is taken for its own")
	}
}

// csi-attacher notes no volume handle: without the PersistentVolume nobody can say what to detach.
func TestLastStateOfAPersistentVolumeThatIsGoneTellsWhatToDetach(t *testing.T) {
	bySidecar := func(va *storagev1.VolumeAttachment) { delete(va.Annotations, attach.AnnotationVolumeHandle) }
	for name, served := range map[string]bool{"served here": true, "served by another": false} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			va := routedAttachment(guardedAttachment, bySidecar)
			if err := d.cluster.Put(va); err != nil {
				t.Fatal(err)
			}
			d.routes.volumeGone(stored(t, guardedVolume()))
			if err := d.cluster.Remove(va); err != nil {
				t.Fatal(err)
			}
			if !served {
				d.routes.close(d)
				d.routes.stray = func(va *storagev1.VolumeAttachment) {
					d.ledger.witness(routedDecider, d.orphanFacts(va), time.Now())
				}
			}
			d.routes.attachmentGone(va)
			d.ledger.close(va.Name)
			if keys := d.ledger.takeOrphans(); len(keys) != 1 || keys[0] != orphanKey(attach.Target{VolumeHandle: "handle", NodeID: "id"}) {
				t.Errorf("to be detached: %v", keys)
			}
		})
	}
}

// Inline volumes have no name to find them by, but a handle.
func TestInlineVolumeWaitsForWhatIsLeftOfItElsewhereAndForNoOther(t *testing.T) {
	l := newLedger(attach.Finalizer(routedDriver))
	inline := func(va *storagev1.VolumeAttachment) {
		va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{}}
	}
	another := routedAttachment(guardedAttachment, inline)
	another.Name = "another"
	l.open(another)
	l.vanish(another.Name) // of some volume
	l.witness(routedDecider, lastOf(routedAttachment(guardedAttachment, inline)), time.Now())
	next := routedAttachment(inline)
	next.Name = "next"
	place := attach.Target{VolumeHandle: "handle", NodeID: "id"}
	for name, c := range map[string]struct {
		target attach.Target
		want   []workKey
	}{
		"elsewhere":      {attach.Target{VolumeHandle: "handle", NodeID: "id-2"}, []workKey{orphanKey(place)}},
		"there":          {place, nil},
		"another volume": {attach.Target{VolumeHandle: "other", NodeID: "id-2"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := l.leftElsewhere(next, c.target); !slices.Equal(got, c.want) {
				t.Errorf("waits for %v, want %v", got, c.want)
			}
		})
	}
}
