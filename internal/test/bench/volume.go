package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// volume is a PersistentVolume and the node to attach it to. Its handle and its VolumeAttachment have its name.
type volume struct{ name, driver, node string }

// spread returns so many volumes of each driver, spread over all nodes.
func spread(prefix string, drivers, nodes []string, each int) []volume {
	volumes := make([]volume, 0, len(drivers)*each)
	// By turns, so that requests in this order reach all drivers at once.
	for i := range each {
		for d, driver := range drivers {
			volumes = append(volumes, volume{fmt.Sprintf("%s-%03d-%05d", prefix, d, i), driver, nodes[(i+d)%len(nodes)]})
		}
	}
	return volumes
}

// claim returns the name of the claim of which persistentVolume says that it has the volume.
func (v volume) claim() string { return "data-" + v.name }

// persistentVolume returns an object of about the size that it has in a cluster: bound, with a class, a volume context and
// the finalizer of an earlier attach.
func (v volume) persistentVolume() *corev1.PersistentVolume {
	pv := testbed.PersistentVolume{
		Name: v.name, Driver: v.driver, Claim: v.claim(), FSType: "ext4",
		Attributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1763730000000-8081-" + v.driver, "type": "ssd"},
	}.Build()
	pv.Spec.StorageClassName = "bench-" + v.driver
	pv.Labels = map[string]string{"topology.kubernetes.io/zone": "zone-a", "topology.kubernetes.io/region": "region-1"}
	pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": v.driver}
	pv.Finalizers = []string{attach.Finalizer(v.driver)}
	return pv
}

func (v volume) attachment() *storagev1.VolumeAttachment {
	return testbed.VolumeAttachment{Name: v.name, Driver: v.driver, Node: v.node, PersistentVolume: v.name}.Build()
}

// create makes the PersistentVolume.
func (s *stage) create(ctx context.Context, v volume) error {
	_, err := s.client().CoreV1().PersistentVolumes().Create(ctx, v.persistentVolume(), metav1.CreateOptions{})
	return err
}

// ask makes the VolumeAttachment.
func (s *stage) ask(ctx context.Context, v volume) error {
	_, err := s.client().StorageV1().VolumeAttachments().Create(ctx, v.attachment(), metav1.CreateOptions{})
	return err
}

// release deletes the VolumeAttachment.
func (s *stage) release(ctx context.Context, v volume) error {
	return s.client().StorageV1().VolumeAttachments().Delete(ctx, v.name, metav1.DeleteOptions{})
}
