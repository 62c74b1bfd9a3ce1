package cache_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
)

const gcePD = "pd.csi.storage.gke.io"

// newCluster returns caches with some objects, without an API server.
func newCluster(t testing.TB, objects ...any) *cache.Cluster {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(kube)
	if err := cachetest.Put(c, objects...); err != nil {
		t.Fatal(err)
	}
	return c
}

func csiVolume(name, handle string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{AccessModes: modes, PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "one", VolumeHandle: handle}}}}
}

func gceVolume(name string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{attach.AnnotationMigratedTo: gcePD}},
		Spec: corev1.PersistentVolumeSpec{AccessModes: modes, PersistentVolumeSource: corev1.PersistentVolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: name}}}}
}

// attachmentOf returns a VolumeAttachment, which notes a handle if one is given.
func attachmentOf(name, driver, volume, noted string) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
	if noted != "" {
		va.Annotations = map[string]string{attach.AnnotationVolumeHandle: noted}
	}
	return va
}

func names(vas []*storagev1.VolumeAttachment) []string {
	var names []string
	for _, va := range vas {
		names = append(names, va.Name)
	}
	slices.Sort(names)
	return names
}

// csi-attacher notes no volume handle.
func TestVolumeAttachmentsOfAHandleAreFoundWhetherTheyNoteItOrNot(t *testing.T) {
	inline := attachmentOf("inline", "one", "", "")
	inline.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &csiVolume("", "h").Spec}
	c := newCluster(t, csiVolume("pv", "h"), csiVolume("another", "h2"), csiVolume("gone", "h"), gceVolume("disk"),
		attachmentOf("noted", "one", "pv", "h"),
		attachmentOf("noted, volume away", "one", "away", "h"),
		attachmentOf("noted, volume recreated", "one", "another", "h"),
		attachmentOf("noted otherwise", "one", "pv", "h2"),
		attachmentOf("noted, another driver", "two", "pv", "h"),
		attachmentOf("not noted", "one", "pv", ""),
		attachmentOf("not noted, another volume", "one", "another", ""),
		attachmentOf("not noted, another driver", "two", "pv", ""),
		attachmentOf("not noted, volume away", "one", "away", ""),
		attachmentOf("not noted, volume deleted", "one", "gone", ""),
		attachmentOf("migrated", gcePD, "disk", ""),
		inline)
	last := c.Volume("gone")
	if err := cachetest.Remove(c, last); err != nil {
		t.Fatal(err)
	}
	c.KeepDeleted(last)
	for _, lookup := range []struct {
		driver, handle string
		want           []string
	}{
		{"one", "h", []string{"inline", "not noted", "not noted, volume deleted", "noted", "noted, volume away", "noted, volume recreated"}},
		{"one", "h2", []string{"not noted, another volume", "noted otherwise"}},
		{"two", "h", []string{"not noted, another driver", "noted, another driver"}},
		{"one", "", []string{"not noted, volume away"}},
		{"three", "h", nil},
		{gcePD, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk", []string{"migrated"}},
	} {
		if got := names(c.AttachmentsOfHandle(lookup.driver, lookup.handle)); !slices.Equal(got, lookup.want) {
			t.Errorf("handle %q of driver %s: got %q, want %q", lookup.handle, lookup.driver, got, lookup.want)
		}
	}
}

func TestVolumeAttachmentThatNotesItsHandleLaterIsFoundByTheNewHandleOnly(t *testing.T) {
	c := newCluster(t, csiVolume("pv", "h"), attachmentOf("va", "one", "pv", ""))
	if err := cachetest.Put(c, attachmentOf("va", "one", "pv", "noted")); err != nil {
		t.Fatal(err)
	}
	if got := names(c.AttachmentsOfHandle("one", "h")); got != nil {
		t.Errorf("by the handle of the PersistentVolume: %q, want none", got)
	}
	if got := names(c.AttachmentsOfHandle("one", "noted")); !slices.Equal(got, []string{"va"}) {
		t.Errorf("by the noted handle: %q, want va", got)
	}
}
