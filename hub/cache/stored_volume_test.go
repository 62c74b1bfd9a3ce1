package cache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

const someDriver = "some.example.com"

// stored returns a volume as its cache keeps it. The object stays the caller's own.
func stored(t *testing.T, pv *corev1.PersistentVolume) *StoredVolume {
	t.Helper()
	obj, err := toCache(pv.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*StoredVolume)
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

func TestReadersOfACachedVolumeDoNotShareIt(t *testing.T) {
	v := stored(t, volumeWithFinalizer())
	v.PersistentVolume().Spec.CSI.VolumeHandle = "another"
	if diff := cmp.Diff(volumeWithFinalizer(), v.PersistentVolume()); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	again, err := toCache(v) // informers do that
	if err != nil || again != any(v) {
		t.Errorf("stored once more it is %v, %v", again, err)
	}
}

func TestOnlyVolumesThatMayHaveToLoseAFinalizerAreIndexed(t *testing.T) {
	deleting := func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = &metav1.Time{} }
	migrated := func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}}
	}
	finalizers := []string{attach.Finalizer(someDriver)}
	for name, tc := range map[string]struct {
		pv   *corev1.PersistentVolume
		want []string
	}{
		"stays":            {volumeWithFinalizer(), nil},
		"is being deleted": {volumeWithFinalizer(deleting), finalizers},
		"is migrated":      {volumeWithFinalizer(migrated), finalizers},
		"has no finalizer of an attacher": {volumeWithFinalizer(deleting, func(pv *corev1.PersistentVolume) {
			pv.Finalizers = []string{"kubernetes.io/pv-protection"}
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := releasableIndex(stored(t, tc.pv))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestStoredVolumeReturnsItsClaimAsTheWholeObjectDoes(t *testing.T) {
	claim := &corev1.ObjectReference{Namespace: "shop", Name: "data"}
	for name, edit := range map[string]func(*corev1.PersistentVolume){
		"bound":       func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = claim },
		"no claim":    func(*corev1.PersistentVolume) {},
		"no spec":     func(pv *corev1.PersistentVolume) { pv.Spec = corev1.PersistentVolumeSpec{} },
		"no name":     func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop"} },
		"only a name": func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = &corev1.ObjectReference{Name: "data"} },
		"in-tree": func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}}
			pv.Spec.ClaimRef = claim
		},
		"other fields around": func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef, pv.Spec.MountOptions = claim, []string{"noatime"}
			pv.Spec.CSI.VolumeAttributes = map[string]string{"shop": "data"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := volumeWithFinalizer(edit)
			want := corev1.ObjectReference{}
			if whole.Spec.ClaimRef != nil {
				want = *whole.Spec.ClaimRef
			}
			if namespace, name := stored(t, whole).Claim(); namespace != want.Namespace || name != want.Name {
				t.Errorf("got %q/%q, want %q/%q", namespace, name, want.Namespace, want.Name)
			}
		})
	}
	if namespace, name := (*StoredVolume)(nil).Claim(); namespace != "" || name != "" {
		t.Errorf("no volume: got %q/%q", namespace, name)
	}
}

func TestAFieldIsNotFoundInBytesThatAreCutShort(t *testing.T) {
	v := stored(t, volumeWithFinalizer(func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
	}))
	for n := range len(v.encoded) {
		short := StoredVolume{encoded: v.encoded[:n]}
		if namespace, name := short.Claim(); namespace != "" && namespace != "shop" || name != "" && name != "data" {
			t.Errorf("%d bytes: got %q/%q", n, namespace, name)
		}
	}
}

func BenchmarkClaimOfStoredVolume(b *testing.B) {
	v, err := StoreVolume(volumeWithFinalizer(func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
	}))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, name := v.Claim(); name != "data" {
			b.Fatal("another claim")
		}
	}
}

func BenchmarkStoreVolume(b *testing.B) {
	whole := volumeWithFinalizer()
	b.ReportAllocs()
	for b.Loop() {
		pv := *whole
		if _, err := StoreVolume(&pv); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadStoredVolume(b *testing.B) {
	v, err := StoreVolume(volumeWithFinalizer())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if v.PersistentVolume().Name != "pv" {
			b.Fatal("another volume")
		}
	}
}
