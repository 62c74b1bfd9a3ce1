package hub

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// stored returns a volume as its cache keeps it. The object stays the caller's own.
func stored(t *testing.T, pv *corev1.PersistentVolume) *storedVolume {
	t.Helper()
	obj, err := toCache(pv.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*storedVolume)
}

func guardedVolume(edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", ResourceVersion: "7", Finalizers: []string{"kubernetes.io/pv-protection", attach.Finalizer(routedDriver)}},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: routedDriver, VolumeHandle: "handle"}}},
	}
	for _, edit := range edits {
		edit(pv)
	}
	return pv
}

func TestReadersOfACachedVolumeDoNotShareIt(t *testing.T) {
	v := stored(t, guardedVolume())
	v.volume().Spec.CSI.VolumeHandle = "another"
	if diff := cmp.Diff(guardedVolume(), v.volume()); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	again, err := toCache(v) // informers do that
	if err != nil || again != any(v) {
		t.Errorf("stored once more it is %v, %v", again, err)
	}
}

func TestOnlyGuardedVolumesThatMayHaveToLeaveAreIndexed(t *testing.T) {
	leaving := func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = &metav1.Time{} }
	migrated := func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}}
	}
	guards := []string{attach.Finalizer(routedDriver)}
	for name, tc := range map[string]struct {
		pv   *corev1.PersistentVolume
		want []string
	}{
		"lives":       {guardedVolume(), nil},
		"is deleted":  {guardedVolume(leaving), guards},
		"is migrated": {guardedVolume(migrated), guards},
		"has no guard": {guardedVolume(leaving, func(pv *corev1.PersistentVolume) {
			pv.Finalizers = []string{"kubernetes.io/pv-protection"}
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := guardianIndex(stored(t, tc.pv))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

// What is written is laid over the cache until the watch has told of it, and takes memory for so long.
func TestWriteThatTookTheFinalizerIsForgottenWithItsEvent(t *testing.T) {
	before := guardedVolume()
	after := guardedVolume(func(pv *corev1.PersistentVolume) { pv.ResourceVersion, pv.Finalizers = "8", nil })
	last := guardedVolume(func(pv *corev1.PersistentVolume) { pv.ResourceVersion = "8" }) // as a deletion tells it
	for name, event := range map[string]func(*router){
		"changed": func(r *router) { r.volumeChanged(stored(t, before), stored(t, after)) },
		"gone":    func(r *router) { r.volumeGone(stored(t, last)) },
		"missed":  func(r *router) { r.volumeGone(cache.DeletedFinalStateUnknown{Key: "pv", Obj: stored(t, last)}) },
	} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			d.overlay.PersistentVolumeWritten(after.DeepCopy())
			event(d.routes)
			// The cache is still at the state before: what the overlay shows is what it has kept.
			if err := d.cluster.put(stored(t, before)); err != nil {
				t.Fatal(err)
			}
			if pv := d.overlay.volume("pv"); pv == nil || pv.ResourceVersion != "7" {
				t.Errorf("the write is kept: %v", pv)
			}
		})
	}
}

func BenchmarkStoreVolume(b *testing.B) {
	whole := guardedVolume()
	b.ReportAllocs()
	for b.Loop() {
		pv := *whole
		if _, err := storeVolume(&pv); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadStoredVolume(b *testing.B) {
	v, err := storeVolume(guardedVolume())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if v.volume().Name != "pv" {
			b.Fatal("another volume")
		}
	}
}
