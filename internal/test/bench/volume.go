package main

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// volume is a PersistentVolume and the node to attach it to. The VolumeAttachment has its name, and so do handle and
// PersistentVolume unless there is a source.
type volume struct {
	name   string
	driver string
	node   string
	shared bool   // between nodes
	source string // its PersistentVolume; empty: name
}

// onEach returns each volume on each node.
func onEach(volumes []volume, nodes []string) []volume {
	var all []volume
	for _, node := range nodes {
		for _, v := range volumes {
			all = append(all, volume{name: v.name + "-" + node, driver: v.driver, node: node, shared: true, source: v.name})
		}
	}
	return all
}

// spread returns so many volumes of each driver, spread over all nodes.
func spread(prefix string, drivers, nodes []string, each int) []volume {
	volumes := make([]volume, 0, len(drivers)*each)
	// By turns, so that requests in this order reach all drivers at once.
	for i := range each {
		for d, driver := range drivers {
			volumes = append(volumes, volume{
				name:   fmt.Sprintf("%s-%03d-%05d", prefix, d, i),
				driver: driver,
				node:   nodes[(i+d)%len(nodes)],
			})
		}
	}
	return volumes
}

// persistentVolume returns an object of about the size that it has in a cluster: bound, with a class
// and a volume context.
func (v volume) persistentVolume(finalizer bool) *corev1.PersistentVolume {
	pv := testbed.PersistentVolume{
		Name: v.name, Driver: v.driver, Claim: v.claim(),
		FSType: "ext4",
		Attributes: map[string]string{
			"storage.kubernetes.io/csiProvisionerIdentity": "1763730000000-8081-" + v.driver,
			"type": "ssd",
		},
	}.Build()
	if v.shared {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	pv.Spec.StorageClassName = "bench-" + v.driver
	pv.Labels = map[string]string{"topology.kubernetes.io/zone": "zone-a", "topology.kubernetes.io/region": "region-1"}
	pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": v.driver}
	if finalizer {
		pv.Finalizers = []string{attach.Finalizer(v.driver)}
	}
	return pv
}

func (v volume) attachment() *storagev1.VolumeAttachment {
	return testbed.VolumeAttachment{Name: v.name, Driver: v.driver, Node: v.node, PersistentVolume: cmp.Or(v.source, v.name)}.Build()
}

func (v volume) create(ctx context.Context, client kubernetes.Interface, finalizer bool) error {
	if _, err := client.CoreV1().PersistentVolumes().Create(ctx, v.persistentVolume(finalizer), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create persistentvolume %s: %w", v.name, err)
	}
	return nil
}

// takeFinalizers removes the finalizers, as if the volume had never been attached.
func (v volume) takeFinalizers(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().PersistentVolumes().Patch(ctx, cmp.Or(v.source, v.name), types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("take the finalizers of persistentvolume %s away: %w", v.name, err)
	}
	return nil
}

// ask makes the VolumeAttachment.
func (v volume) ask(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.StorageV1().VolumeAttachments().Create(ctx, v.attachment(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create volumeattachment %s: %w", v.name, err)
	}
	return nil
}

// release deletes the VolumeAttachment.
func (v volume) release(ctx context.Context, client kubernetes.Interface) error {
	if err := client.StorageV1().VolumeAttachments().Delete(ctx, v.name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete volumeattachment %s: %w", v.name, err)
	}
	return nil
}
