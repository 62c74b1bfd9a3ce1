package cache

import (
	"maps"
	"runtime/debug"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// decoded returns an object as it comes from the API server: with texts of its own.
func decoded[T any, P interface {
	*T
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}](t *testing.T, object P) P {
	t.Helper()
	text, err := object.Marshal()
	must(t, err)
	var copied T
	must(t, P(&copied).Unmarshal(text))
	return &copied
}

// What a ControllerPublishVolume request, a patch and a decision are made of must
// survive, the rest must not take memory a hundred thousand times.
func TestCachedVolumeIsWhatIsNeededOfIt(t *testing.T) {
	filesystem, class := corev1.PersistentVolumeFilesystem, "gold"
	secret := &corev1.SecretReference{Namespace: "default", Name: "s"}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	at, later := metav1.Unix(1, 0), metav1.Unix(2, 0)
	want := &attach.Volume{Name: "pv", UID: "u", ResourceVersion: "7", Created: at, Deleted: &later, Finalizers: []string{"external-attacher/d"},
		Claim: "ns/claim",
		Source: attach.Source{Driver: "d", Handle: "h", FSType: "ext4", MountOptions: []string{"noatime"}, Attributes: []attach.Attribute{{Key: "k", Value: "v"}},
			SecretRef: secret, AccessModes: modes, Nodes: attach.SingleNode, ReadOnly: true}}
	whole := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "u", ResourceVersion: "7", CreationTimestamp: at, DeletionTimestamp: &later, Finalizers: []string{"external-attacher/d"},
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{attach.AnnotationMigratedTo: "d"}},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef:    &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "claim", UID: "u", ResourceVersion: "9"},
			AccessModes: modes, MountOptions: []string{"noatime"}, VolumeMode: &filesystem, StorageClassName: "sc", VolumeAttributesClassName: &class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "d", VolumeHandle: "h", ReadOnly: true, FSType: "ext4", VolumeAttributes: map[string]string{"k": "v"}, ControllerPublishSecretRef: secret,
				NodeStageSecretRef: secret}},
		},
	}
	if diff := cmp.Diff(want, stored(decoded(t, whole)), cmp.AllowUnexported(attach.Volume{})); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestCachedObjectsShareTheirEqualTexts(t *testing.T) {
	// What is shared is known until the next collection.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	same := func(what string, a, b string) {
		t.Helper()
		if a != b || unsafe.StringData(a) != unsafe.StringData(b) {
			t.Errorf("%s: %q and %q are two texts", what, a, b)
		}
	}
	va := func() *storagev1.VolumeAttachment {
		va := decoded(t, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"external-attacher/d"},
			Annotations: map[string]string{attach.AnnotationNodeID: "id", attach.AnnotationVolumeHandle: "h"}},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: "ebs.csi.aws.com", NodeName: "node-1"}})
		trim(va)
		return va
	}
	a, b := va(), va()
	same("attacher", a.Spec.Attacher, b.Spec.Attacher)
	same("node", a.Spec.NodeName, b.Spec.NodeName)
	same("finalizer", a.Finalizers[0], b.Finalizers[0])
	same("node ID", a.Annotations[attach.AnnotationNodeID], b.Annotations[attach.AnnotationNodeID])
	volume := func() *attach.Volume {
		return stored(decoded(t, volumeWithFinalizer(func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.FSType, pv.Spec.CSI.VolumeAttributes = "ext4", map[string]string{"pool": "fast"}
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		})))
	}
	v, w := volume(), volume()
	same("driver", v.Driver, w.Driver)
	same("file system", v.FSType, w.FSType)
	same("access mode", string(v.AccessModes[0]), string(w.AccessModes[0]))
	same("attribute", v.Attributes[0].Value, w.Attributes[0].Value)
	keys := func(va *storagev1.VolumeAttachment) []string { return slices.Sorted(maps.Keys(va.Annotations)) }
	for i := range keys(a) {
		same("key of an annotation", keys(a)[i], keys(b)[i])
	}
}

// A patch is made from the cached object. It tests the UID and the finalizers, and adds the map of annotations if there
// is none.
func TestCachedVolumeAttachmentIsWhatIsNeededOfIt(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"of the hub":       {attach.AnnotationNodeID: "id", attach.AnnotationVolumeHandle: "h"},
		"of somebody else": {"a": "b"},
		"none":             nil,
	} {
		t.Run(name, func(t *testing.T) {
			volume := "pv"
			needed := &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "u", ResourceVersion: "7", Annotations: annotations, Finalizers: []string{"a/b", "external-attacher/d"},
					DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}},
				Spec:   storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
				Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachError: &storagev1.VolumeError{Message: "m"}, DetachError: &storagev1.VolumeError{Message: "n"}},
			}
			whole := needed.DeepCopy()
			whole.Labels, whole.OwnerReferences = map[string]string{"a": "b"}, []metav1.OwnerReference{{Name: "o"}}
			whole.Status.AttachmentMetadata = map[string]string{"devicePath": "/dev/xvda"}
			received := decoded(t, whole)
			before := received.Annotations
			trim(received)
			if diff := cmp.Diff(needed, received); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			if diff := cmp.Diff(annotations, before); diff != "" {
				t.Errorf("the map was changed, want -, got +:\n%s", diff)
			}
		})
	}
}

func TestInTreeVolumesAreTranslatedOnTheirWayIn(t *testing.T) {
	zone := map[string]string{corev1.LabelTopologyZone: "us-central1-a"}
	for _, tc := range []struct {
		name, driver string
		source       corev1.PersistentVolumeSource
	}{
		{"gce", "pd.csi.storage.gke.io", corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}}},
		{"ebs", "ebs.csi.aws.com", corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0123456789abcdef0"}}},
		{"cinder", "cinder.csi.openstack.org", corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "d"}}},
		{"azure disk", "disk.csi.azure.com", corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/s/d"}}},
		{"vsphere", "csi.vsphere.vmware.com", corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[d] d.vmdk"}}},
		{"azure file", "file.csi.azure.com", corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s", ShareName: "d"}}},
		{"portworx", "pxd.portworx.com", corev1.PersistentVolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "d"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: zone, Annotations: map[string]string{"kubernetes.io/azure-file-resource-group": "rg"}},
				Spec: corev1.PersistentVolumeSpec{
					PersistentVolumeSource: tc.source,
					AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					ClaimRef:               &corev1.ObjectReference{Namespace: "ns", Name: "claim"},
				},
			}
			if v := stored(pv); v.Driver != tc.driver || v.Handle == "" || v.MigratedTo == nil {
				t.Errorf("driver %q, handle %q, migrated to %v; want driver %s", v.Driver, v.Handle, v.MigratedTo, tc.driver)
			}
		})
	}
}
