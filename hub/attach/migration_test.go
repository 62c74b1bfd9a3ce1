package attach

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

const awsEBS = "ebs.csi.aws.com"

// migratedTo returns an in-tree volume as kube-controller-manager leaves it when it is
// migrated to a driver.
func migratedTo(driver string, labels map[string]string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
	return wholeVolume(func(pv *corev1.PersistentVolume) {
		pv.Labels = labels
		pv.Annotations = map[string]string{AnnotationMigratedTo: driver}
		pv.Spec.PersistentVolumeSource = source
	})
}

const gcePD = "pd.csi.storage.gke.io"

func gceDisk(name string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: name}}
}

func ebsVolume(id string, partition int32) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id, Partition: partition, FSType: "xfs"}}
}

func TestMigratedVolumeIsCalledAsItsDriverCallsIt(t *testing.T) {
	zone := func(z string) map[string]string { return map[string]string{corev1.LabelTopologyZone: z} }
	for _, tc := range []struct {
		name, driver string
		pv           *corev1.PersistentVolume
		handle       string
		attributes   map[string]string
	}{
		{"disk of a zone", gcePD, migratedTo(gcePD, zone("us-a"), gceDisk("pd")),
			"projects/UNSPECIFIED/zones/us-a/disks/pd", map[string]string{"partition": ""}},
		{"disk with the label of old", gcePD, migratedTo(gcePD, map[string]string{corev1.LabelFailureDomainBetaZone: "testZone"}, gceDisk("testpd")),
			"projects/UNSPECIFIED/zones/testZone/disks/testpd", map[string]string{"partition": ""}},
		{"disk of a region", gcePD, migratedTo(gcePD, zone("us-central1-a__us-central1-c"), gceDisk("pd")),
			"projects/UNSPECIFIED/regions/us-central1/disks/pd", map[string]string{"partition": ""}},
		{"disk without labels", gcePD, migratedTo(gcePD, nil, gceDisk("pd")),
			"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd", map[string]string{"partition": ""}},
		{"EBS volume by its ID", awsEBS, migratedTo(awsEBS, nil, ebsVolume("vol-0123456789abcdef0", 0)),
			"vol-0123456789abcdef0", map[string]string{"partition": "0"}},
		{"partition of an EBS volume by URL", awsEBS, migratedTo(awsEBS, zone("eu-1a"), ebsVolume("aws://eu-1a/vol-0123456789abcdef0", 2)),
			"vol-0123456789abcdef0", map[string]string{"partition": "2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Driver{Name: tc.driver, Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
			node := &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: tc.driver, NodeID: "id-1"}}}}
			before := tc.pv.DeepCopy()
			plan, err := d.Decide(Inputs{VolumeAttachment: attachment(), PersistentVolume: VolumeOf(tc.pv), CSINode: node})
			must(t, err)
			if plan.Publish.VolumeId != tc.handle || !cmp.Equal(plan.Publish.VolumeContext, tc.attributes) || plan.VolumeFinalizer == nil {
				t.Errorf("publish of %q with %v, guarded %v; want %q with %v, guarded", plan.Publish.VolumeId, plan.Publish.VolumeContext, plan.VolumeFinalizer != nil, tc.handle, tc.attributes)
			}
			if _, sure := d.NamesTarget(Inputs{VolumeAttachment: attachment(), PersistentVolume: VolumeOf(tc.pv), CSINode: node}, plan.Target); !sure {
				t.Errorf("the volume is not wanted at %v, where the plan attaches it", plan.Target)
			}
			gone := attachment(attached, deleted, finalizers(Finalizer(tc.driver)))
			if plan, err = d.Decide(Inputs{VolumeAttachment: gone, PersistentVolume: VolumeOf(tc.pv), CSINode: node}); err != nil || plan.Target.VolumeHandle != tc.handle {
				t.Errorf("unpublish of %q, %v, want %q", plan.Target.VolumeHandle, err, tc.handle)
			}
			if diff := cmp.Diff(before, tc.pv); diff != "" {
				t.Errorf("the object of the cache was changed:\n%s", diff)
			}
		})
	}
}

func TestMigratedVolumeIsAttachedInTheModeThatItsInTreePluginAllowed(t *testing.T) {
	d := Driver{Name: gcePD, Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
	pv := migratedTo(gcePD, nil, gceDisk("pd"))
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany} // an error for a CSI volume
	plan, err := d.Decide(Inputs{VolumeAttachment: attachment(), PersistentVolume: VolumeOf(pv),
		CSINode: &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: gcePD, NodeID: "id-1"}}}}})
	if err != nil || plan.Nodes != SingleNode || plan.Publish.VolumeCapability.AccessMode.Mode.String() != "SINGLE_NODE_WRITER" {
		t.Errorf("publish %v, %v, want SINGLE_NODE_WRITER", plan.Publish, err)
	}
}

func TestFinalizerOfAVolumeGoesOnDeletionAndOnRollbackOfMigration(t *testing.T) {
	guard := Finalizer(gcePD)
	migrated := func(to string, edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := migratedTo(to, nil, gceDisk("pd"))
		if to == "" {
			pv.Annotations = nil
		}
		pv.Finalizers = []string{"kubernetes.io/pv-protection", guard, "example.com/last"}
		for _, edit := range edits {
			edit(pv)
		}
		return pv
	}
	dying := func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = ptr(metav1.Now()) }
	unguarded := func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"kubernetes.io/pv-protection"} }
	csi := func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = wholeVolume().Spec.PersistentVolumeSource
	}
	for _, tc := range []struct {
		name string
		pv   *corev1.PersistentVolume
		want bool
	}{
		{"migrated to this driver", migrated(gcePD), false},
		{"migrated to this driver, being deleted", migrated(gcePD, dying), true},
		{"rolled back", migrated(""), true},
		{"migrated to another driver", migrated("other.example.com"), true},
		{"rolled back, finalizer gone before", migrated("", unguarded), false},
		{"CSI volume", migrated("", csi), false},
		{"CSI volume being deleted", migrated("", csi, dying), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := VolumeOf(tc.pv)
			if got := v.LosesFinalizer(gcePD); got != tc.want {
				t.Errorf("loses its finalizer: %v, want %v", got, tc.want)
			}
			if tc.want {
				assertPatch(t, removeFinalizer(v.meta(), guard), "pv-1", `[{"op":"test","path":"/metadata/uid","value":"pv-uid-1"},
					{"op":"test","path":"/metadata/finalizers/1","value":"`+guard+`"},
					{"op":"remove","path":"/metadata/finalizers/1"}]`)
			}
		})
	}
}
