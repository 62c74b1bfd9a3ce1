package cache

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

const someDriver = "some.example.com"

// stored returns a volume as its cache keeps it. The object stays the caller's own.
func stored(pv *corev1.PersistentVolume) *attach.Volume {
	obj, err := Transform(pv.DeepCopy())
	if err != nil {
		panic(err)
	}
	return obj.(*attach.Volume)
}

func volumeWithFinalizer(edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", ResourceVersion: "7", Finalizers: []string{"kubernetes.io/pv-protection", attach.Finalizer(someDriver)}},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: someDriver, VolumeHandle: "handle"}}},
	}
	for _, edit := range edits {
		edit(pv)
	}
	return pv
}

func TestCachedVolumeIsKeptAsItIsWhenItsInformerTrimsItAgain(t *testing.T) {
	v := stored(volumeWithFinalizer())
	again, err := Transform(v)
	if err != nil || again != any(v) {
		t.Errorf("trimmed once more it is %v, %v", again, err)
	}
}

func TestOnlyVolumesThatHaveToLoseTheFinalizerOfADriverLoseIt(t *testing.T) {
	// When one has to lose it is TestFinalizerOfAVolumeGoesOnDeletionAndOnRollbackOfMigration of package attach.
	deleting := func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = &metav1.Time{} }
	for name, tc := range map[string]struct {
		pv   *corev1.PersistentVolume
		want bool
	}{
		"stays":            {volumeWithFinalizer(), false},
		"is being deleted": {volumeWithFinalizer(deleting), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := unwatched(t)
			must(t, put(c, tc.pv))
			if got := c.VolumesLosingFinalizer(someDriver); len(got) > 0 != tc.want {
				t.Errorf("got %v, want one: %v", got, tc.want)
			}
		})
	}
}
