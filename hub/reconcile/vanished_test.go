package reconcile

import (
	"maps"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// danglingAt returns where publications are dangling, and by which VolumeAttachment each was left.
func danglingAt(t *volume.Table) map[attach.Target]string {
	at := map[attach.Target]string{}
	for _, u := range t.AllDangling() {
		at[u.Target] = string(u.FormerOwner.UID)
	}
	return at
}

// onlooker takes the events of a driver that is only observed.
type onlooker struct{}

func (onlooker) AttachmentChanged(_, _ *storagev1.VolumeAttachment) {}
func (onlooker) Look(string)                                        {}
func (onlooker) LookAtAll()                                         {}

// Somebody else works for the driver, and may end before it sees what has vanished.
func TestStandbyRemembersWhatAVanishedVolumeAttachmentMayHaveLeftPublished(t *testing.T) {
	deleted := func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &metav1.Time{} }
	unguarded := func(va *storagev1.VolumeAttachment) { va.Finalizers = nil }
	unattached := func(va *storagev1.VolumeAttachment) { va.Status.Attached = false }
	withoutCall := func(va *storagev1.VolumeAttachment) { va.Annotations = nil }
	otherFinalizer := func(va *storagev1.VolumeAttachment) { va.Finalizers = []string{"example.com/a"} }
	foreign := func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "foreign.example.com" }
	for name, c := range map[string]struct {
		gone     any
		observed bool // the driver is in mode observe
		want     bool
	}{
		"vanished with its finalizer":                     {routedAttachment(guardedAttachment), false, true},
		"vanished while observed":                         {routedAttachment(guardedAttachment), true, true},
		"vanished while it was being attached":            {routedAttachment(guardedAttachment, unattached), false, true},
		"its finalizer was taken while it was attached":   {routedAttachment(guardedAttachment, unguarded), false, true},
		"attached by a driver without calls, and deleted": {routedAttachment(guardedAttachment, unguarded, withoutCall), false, false},
		"detached and deleted":                            {routedAttachment(guardedAttachment, deleted), false, false},
		"never guarded":                                   {routedAttachment(guardedAttachment, unguarded, unattached), false, false},
		"never guarded but by others":                     {routedAttachment(guardedAttachment, otherFinalizer, unattached), false, false},
		"of a driver that is unknown here":                {routedAttachment(guardedAttachment, foreign), false, false},
		"deletion was missed":                             {toolscache.DeletedFinalStateUnknown{Key: "va", Obj: routedAttachment(guardedAttachment)}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			d.router.Close(d.Driver, d.Worker)
			table := d.Table
			if c.observed {
				d.router.Open(routedDriver, onlooker{})
			}
			d.router.Handlers().Attachments.OnDelete(c.gone)
			table.Forget(time.Now()) // what happens when a driver is taken over
			want := map[attach.Target]string{}
			if c.want {
				want[routedTarget] = "uid-1"
			}
			if got := danglingAt(table); !maps.Equal(got, want) {
				t.Errorf("to be detached: %v, want %v", got, want)
			}
			if table.OwesDetach() {
				t.Error("this process has to see to it before it has taken the driver over")
			}
		})
	}
}

// What its driver could do in its last session says whether one that is attached without a note was published.
func TestStandbyRemembersWhatWasAttachedByMistakeOnlyOfADriverThatIsCalled(t *testing.T) {
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: routedDriver, NodeID: "id"}}}}
	for name, called := range map[string]bool{"with calls": true, "without calls": false} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			if called {
				d.connectTo(&recording{})
			} else {
				d.connectTo(withoutCalls{})
			}
			must(t, cachetest.Put(d.Cluster, node, stored(guardedVolume())))
			d.router.Close(d.Driver, d.Worker)
			d.router.onAttachment(routedAttachment(func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }), nil, false)
			if got := len(danglingAt(d.Table)) == 1; got != called {
				t.Errorf("to be detached: %v, want %v", got, called)
			}
		})
	}
}

// withoutCalls is a session of a driver that is not called to attach.
type withoutCalls struct{ steadySession }

func (withoutCalls) Info() csiclient.Info { return csiclient.Info{} }

// Nothing but the last state of the object told of the volume: the worker had not come to look at it, or had not been able to.
func TestLastStateOfAVanishedAttachmentIsUsedIfNothingElseIsKnownOfIt(t *testing.T) {
	va := routedAttachment(guardedAttachment)
	left := map[attach.Target]string{routedTarget: "uid-1"}
	for name, c := range map[string]struct {
		before func(*routedWorker)
		want   map[attach.Target]string
	}{
		"nothing was known":  {func(*routedWorker) {}, left},
		"it was only opened": {func(d *routedWorker) { d.Table.Open(va) }, left}, // for a drift that was found, say
		"it was detached and let go": {func(d *routedWorker) {
			c := d.Table.Open(va)
			d.Table.Start(c, volume.Run{}, volume.Effect{Kind: volume.RemoveFinalizer})
		}, map[attach.Target]string{}},
		"another of the name is there": {func(d *routedWorker) {
			d.Table.Open(routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) { va.UID = "uid-2" }))
		}, left},
	} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			c.before(d)
			d.router.onAttachment(va, nil, false)
			if got := danglingAt(d.Table); !maps.Equal(got, c.want) {
				t.Errorf("to be detached: %v, want %v", got, c.want)
			}
		})
	}
	d := routed(t)
	other := d.Table.Open(routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) { va.UID = "uid-2" }))
	d.router.onAttachment(va, nil, false)
	if p := other; p.MayBePublished() || len(d.Table.Attachments()) != 1 {
		t.Errorf("what another of the name has published is taken for its own: %+v", p)
	}
}

// csi-attacher notes no volume handle: without the PersistentVolume nobody can say what to detach.
func TestLastStateOfAPersistentVolumeThatIsGoneTellsWhatToDetach(t *testing.T) {
	bySidecar := func(va *storagev1.VolumeAttachment) { delete(va.Annotations, attach.AnnotationVolumeHandle) }
	for name, served := range map[string]bool{"served here": true, "served by another": false} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			va := routedAttachment(guardedAttachment, bySidecar)
			must(t, cachetest.Put(d.Cluster, va))
			d.router.onVolume(stored(guardedVolume()), nil, false)
			must(t, cachetest.Remove(d.Cluster, va))
			if !served {
				d.router.Close(d.Driver, d.Worker)
			}
			d.router.onAttachment(va, nil, false)
			if got := danglingAt(d.Table); !maps.Equal(got, map[attach.Target]string{routedTarget: "uid-1"}) {
				t.Errorf("to be detached: %v", got)
			}
		})
	}
}
