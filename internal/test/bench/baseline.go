package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// baseline attaches at the least possible cost: it is a client that knows every answer beforehand and makes only the calls that
// correctness needs. Whatever an attacher takes beyond that is the attacher's own cost.
//
// It watches VolumeAttachments, because there is no other way to learn of them, and keeps none. Handles and node IDs follow from
// names, so it reads nothing. An attach is one write of finalizer and annotations, the call, and one write of the status: the
// PersistentVolume has its finalizer. A detach is the call, and one write that removes the finalizer. Everything runs at once,
// without a limit.
//
// It is no attacher: it retries nothing, and ends with the first error.
type baseline struct {
	kube    kubernetes.Interface
	drivers map[string]csi.ControllerClient
}

// runBaseline blocks until ctx ends, and returns nil then, or until something fails. drivers are endpoints by name. It calls ready
// once it watches.
func runBaseline(ctx context.Context, kubeconfig string, drivers map[string]string, ready func()) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("find the Kubernetes API: %w", err)
	}
	// As the hub's: protobuf, not compressed, without a rate limit.
	config.QPS, config.DisableCompression = -1, true
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	f := &baseline{drivers: map[string]csi.ControllerClient{}}
	if f.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for name, endpoint := range drivers {
		conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		f.drivers[name] = csi.NewControllerClient(conn)
		// One call to each driver, so that no measured call waits for a connection.
		if _, err := f.drivers[name].ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{}); err != nil {
			return fmt.Errorf("connect to driver %s: %w", name, err)
		}
	}
	attachments := f.kube.StorageV1().VolumeAttachments()
	list, err := attachments.List(ctx, metav1.ListOptions{Limit: 1}) // there is no VolumeAttachment yet
	if err != nil {
		return err
	}
	// The API server ends the watch of a client that is too slow, as on a busy machine: go on where it ended.
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: attachments.Watch})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	ready()
	all, running := errgroup.WithContext(ctx)
	for {
		select {
		case event, open := <-watcher.ResultChan():
			va, ok := event.Object.(*storagev1.VolumeAttachment)
			switch {
			case !open || !ok:
				return errors.Join(fmt.Errorf("the watch has ended: %v", event.Object), all.Wait())
			case event.Type == watch.Deleted: // as it was before
			case va.DeletionTimestamp != nil && len(va.Finalizers) > 0:
				all.Go(func() error { return f.detach(running, va) })
			case va.DeletionTimestamp == nil && len(va.Finalizers) == 0:
				all.Go(func() error { return f.attach(running, va) })
			}
		case <-running.Done():
			if err := all.Wait(); ctx.Err() == nil {
				return err
			}
			return nil
		}
	}
}

// op is one operation of a JSON Patch. The hub writes JSON Patches too, so the API server has the same work.
type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// attach makes the calls of one attach.
func (f *baseline) attach(ctx context.Context, va *storagev1.VolumeAttachment) error {
	volume, id := attach.VolumeName(va), testbed.NodeID(va.Spec.NodeName)
	err := f.patch(ctx, va, []op{
		{"add", "/metadata/finalizers", []string{attach.Finalizer(va.Spec.Attacher)}},
		{"add", "/metadata/annotations", map[string]string{attach.AnnotationNodeID: id, attach.AnnotationVolumeHandle: volume}},
	})
	if err != nil {
		return err
	}
	response, err := f.drivers[va.Spec.Attacher].ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: volume,
		NodeId:   id,
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		},
	})
	if err != nil {
		return fmt.Errorf("publish %s: %w", volume, err)
	}
	status := storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: response.GetPublishContext()}
	return f.patch(ctx, va, []op{{"add", "/status", status}}, "status")
}

// detach makes the calls of one detach.
func (f *baseline) detach(ctx context.Context, va *storagev1.VolumeAttachment) error {
	_, err := f.drivers[va.Spec.Attacher].ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
		VolumeId: attach.VolumeName(va), NodeId: testbed.NodeID(va.Spec.NodeName),
	})
	if err != nil {
		return fmt.Errorf("unpublish %s: %w", attach.VolumeName(va), err)
	}
	return f.patch(ctx, va, []op{{Op: "remove", Path: "/metadata/finalizers"}})
}

// patch writes as the hub does: its name in managedFields, so that the objects are equally large, and no check for unknown fields.
func (f *baseline) patch(ctx context.Context, va *storagev1.VolumeAttachment, ops []op, subresources ...string) error {
	body, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	_, err = f.kube.StorageV1().VolumeAttachments().Patch(ctx, va.Name, types.JSONPatchType, body,
		metav1.PatchOptions{FieldManager: attach.FieldManager, FieldValidation: metav1.FieldValidationIgnore}, subresources...)
	return err
}
