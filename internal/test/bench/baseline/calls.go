package baseline

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// patchOptions are the hub's: its name in managedFields, so that the objects are equally large, and no check for unknown fields.
var patchOptions = metav1.PatchOptions{FieldManager: attach.FieldManager, FieldValidation: metav1.FieldValidationIgnore}

// op is one operation of a JSON Patch. The hub writes JSON Patches too, so the API server has the same
// work.
type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// attach makes the calls of one attach and closes attached.
func (b *Baseline) attach(ctx context.Context, va *storagev1.VolumeAttachment, attached chan<- struct{}) error {
	driver, volume := b.drivers[va.Spec.Attacher], attach.VolumeName(va)
	if driver == nil {
		return fmt.Errorf("attach %s: there is no driver %s", va.Name, va.Spec.Attacher)
	}
	if err := b.addFinalizers(ctx, va, volume); err != nil {
		return err
	}
	response, err := driver.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: volume,
		NodeId:   testbed.NodeID(va.Spec.NodeName),
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: b.mode},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		},
	})
	if err != nil {
		return fmt.Errorf("publish %s: %w", volume, err)
	}
	status := storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: response.GetPublishContext()}
	if err := b.patchAttachment(ctx, va.Name, []op{{"add", "/status", status}}, "status"); err != nil {
		return err
	}
	close(attached)
	return nil
}

// addFinalizers writes the finalizers.
func (b *Baseline) addFinalizers(ctx context.Context, va *storagev1.VolumeAttachment, volume string) error {
	finalizers := op{"add", "/metadata/finalizers", []string{attach.Finalizer(va.Spec.Attacher)}}
	var writes errgroup.Group
	if b.lacksFinalizer(volume) {
		writes.Go(func() error {
			_, err := b.kube.CoreV1().PersistentVolumes().Patch(ctx, volume, types.JSONPatchType, encode([]op{finalizers}),
				patchOptions)
			if err != nil {
				return fmt.Errorf("patch persistentvolume %s: %w", volume, err)
			}
			return nil
		})
	}
	writes.Go(func() error {
		return b.patchAttachment(ctx, va.Name, []op{finalizers, {"add", "/metadata/annotations", map[string]string{
			attach.AnnotationNodeID: testbed.NodeID(va.Spec.NodeName), attach.AnnotationVolumeHandle: volume,
		}}})
	})
	return writes.Wait()
}

// detach makes the calls of one detach, after the attach if one has begun.
func (b *Baseline) detach(ctx context.Context, va *storagev1.VolumeAttachment, attached <-chan struct{}) error {
	if attached != nil {
		select {
		case <-attached:
		case <-ctx.Done():
			return nil
		}
	}
	driver, volume := b.drivers[va.Spec.Attacher], attach.VolumeName(va)
	if driver == nil {
		return fmt.Errorf("detach %s: there is no driver %s", va.Name, va.Spec.Attacher)
	}
	_, err := driver.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: testbed.NodeID(va.Spec.NodeName)})
	if err != nil {
		return fmt.Errorf("unpublish %s: %w", volume, err)
	}
	return b.patchAttachment(ctx, va.Name, []op{{Op: "remove", Path: "/metadata/finalizers"}})
}

func (b *Baseline) patchAttachment(ctx context.Context, name string, ops []op, subresources ...string) error {
	_, err := b.kube.StorageV1().VolumeAttachments().Patch(ctx, name, types.JSONPatchType, encode(ops),
		patchOptions, subresources...)
	if err != nil {
		return fmt.Errorf("patch volumeattachment %s: %w", name, err)
	}
	return nil
}

// encode encodes a patch. It cannot fail: the values are plain.
func encode(ops []op) []byte {
	body, err := json.Marshal(ops)
	if err != nil {
		panic(err)
	}
	return body
}
