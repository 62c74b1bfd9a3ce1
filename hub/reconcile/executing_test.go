package reconcile

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
)

// executing is a driver, with an API server in memory, one attachment of which is carried out.
type executing struct {
	t *testing.T
	*routedWorker
	api       *fakekube.API
	kube      kubernetes.Interface // of others
	recording *recording
}

// recording is a session that records calls, by name and node ID, and answers them.
type recording struct {
	steadySession
	calls []string
	// answer is the error of a call, nil for none; may be nil.
	answer func(call string) error
}

func (r *recording) Info() csiclient.Info {
	return csiclient.Info{Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
}

func (r *recording) called(call string) error {
	r.calls = append(r.calls, call)
	if r.answer == nil {
		return nil
	}
	return r.answer(call)
}

func (r *recording) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"key": "value"}}, r.called("publish " + req.NodeId)
}

func (r *recording) ControllerUnpublishVolume(_ context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, r.called("unpublish " + req.NodeId)
}

// inExecution calls f with a driver and a new VolumeAttachment. The driver's requests go through wrap, if that is not nil.
func inExecution(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper, f func(x *executing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := fakekube.New()
		server := http.RoundTripper(api)
		if wrap != nil {
			server = wrap(api)
		}
		kube := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://api", Transport: server, QPS: -1,
			ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
		x := &executing{t: t, routedWorker: routedOn(t, kube), api: api, kube: api.Client(), recording: &recording{}}
		x.connectTo(x.recording)
		pv, va := guardedVolume(func(pv *corev1.PersistentVolume) {
			pv.Finalizers, pv.Spec.AccessModes = nil, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		}), routedAttachment()
		pv.ResourceVersion, va.ResourceVersion, va.UID = "", "", ""
		pv, err := x.kube.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
		must(t, err)
		if _, err := x.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		must(t, cachetest.Put(x.Cluster, stored(pv)))
		x.register("id")
		x.catchUpCache()
		f(x)
	})
}

// register has the node of the VolumeAttachment come with a node ID.
func (x *executing) register(nodeID string) {
	x.t.Helper()
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: routedDriver, NodeID: nodeID}}}}
	_ = x.kube.StorageV1().CSINodes().Delete(x.t.Context(), node.Name, metav1.DeleteOptions{})
	node, err := x.kube.StorageV1().CSINodes().Create(x.t.Context(), node, metav1.CreateOptions{})
	if err == nil {
		err = cachetest.Put(x.Cluster, node)
	}
	must(x.t, err)
}

func (x *executing) get() *storagev1.VolumeAttachment {
	x.t.Helper()
	va, err := x.kube.StorageV1().VolumeAttachments().Get(x.t.Context(), "va", metav1.GetOptions{})
	must(x.t, err)
	return va
}

// catchUpCache has the cache know the VolumeAttachment as it is.
func (x *executing) catchUpCache() {
	x.t.Helper()
	va := x.get()
	must(x.t, cachetest.Put(x.Cluster, va))
	x.Overlay.VolumeAttachmentChanged(va)
}

func (x *executing) delete() {
	x.t.Helper()
	must(x.t, x.kube.StorageV1().VolumeAttachments().Delete(x.t.Context(), "va", metav1.DeleteOptions{}))
	x.catchUpCache()
}

// look is one look of a worker at the VolumeAttachment. It returns its error.
func (x *executing) look() error {
	x.t.Helper()
	_, lane := x.required("va")
	x.Queue.Add(queue.AttachmentKey("va"), lane, queue.Destination{})
	return x.lookWith(x.start(x.t))
}

// lookWith is look with the entry of the VolumeAttachment.
func (x *executing) lookWith(e *queue.Item) error {
	x.t.Helper()
	if e == nil || e.Key != queue.AttachmentKey("va") {
		x.t.Fatalf("%+v starts, want the VolumeAttachment", e)
	}
	va := x.Overlay.Attachment("va")
	err := x.carryOut(e, va)
	if !errors.Is(err, errBlocked) {
		x.Queue.End(e, queue.Finished)
	}
	return err
}

// carryOut carries out what a VolumeAttachment requires, without the end of the run.
func (x *executing) carryOut(e *queue.Item, va *storagev1.VolumeAttachment) error {
	op, _ := x.Table.Required(x.Decider(), va)
	return (&execution{worker: x.Worker, item: e, object: va, attachment: x.Table.Open(va), op: op}).execute(x.t.Context())
}
