package attach_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
)

const stepDriver = "steps.example.com"

// outside is what an Attacher reaches, in memory: it writes down what happens in which order.
type outside struct {
	t       *testing.T
	api     *fakekube.API
	nodeID  string               // "": id-n
	kube    kubernetes.Interface // of others: its requests are not written down
	backend *fakecsi.Backend
	decider attach.Driver
	// answer, if not 0, is the HTTP status of the API server's answer to all writes.
	answer int
	// limit and fence are what the limit and the fence say.
	limit, fence error

	mu     sync.Mutex
	events []string // guarded by mu
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	backend, err := fakecsi.New(fakecsi.Options{Name: stepDriver})
	must(t, err)
	api := fakekube.New()
	return &outside{t: t, api: api, kube: api.Client(), backend: backend,
		decider: attach.Driver{Name: stepDriver, Capabilities: csiclient.Capabilities{PublishUnpublish: true}}}
}

// attacher returns an Attacher all whose ways to the outside are written down.
func (o *outside) attacher() attach.Attacher {
	o.api.Intercept(func(r fakekube.Request) int {
		o.happened(r.Verb + " " + r.Resource)
		if r.Verb == "patch" {
			return o.answer
		}
		return 0
	})
	return attach.Attacher{
		Writer:     attach.Writer{Kube: o.kube, Limit: o.wait, Fence: o.askFence, Written: o, FinalizerWrites: &singleflight.Group{}},
		ReadSecret: readFrom(o.kube), Call: callTo(o), CallTimeout: time.Minute, Redactor: &attach.Redactor{}}
}

func (o *outside) happened(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, what)
}

// heard returns what has happened since the last time.
func (o *outside) heard() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := o.events
	o.events = nil
	return events
}

// Wait implements attach.Limit.
func (o *outside) wait(ctx context.Context) error {
	o.happened("limit")
	if _, limited := ctx.Deadline(); limited {
		o.t.Error("what the limit waits is taken from the time of the request")
	}
	return o.limit
}

func (o *outside) askFence(ctx context.Context) error {
	o.happened("fence")
	if _, limited := ctx.Deadline(); !limited {
		o.t.Error("the fence is not told the deadline of the request")
	}
	return o.fence
}

func (o *outside) VolumeAttachmentWritten(*storagev1.VolumeAttachment) {
	o.happened("record VolumeAttachment")
}
func (o *outside) PersistentVolumeWritten(*attach.Volume) {
	o.happened("record PersistentVolume")
}

func (o *outside) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	o.happened("ControllerPublishVolume")
	return o.backend.ControllerPublishVolume(ctx, r)
}

func (o *outside) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	o.happened("ControllerUnpublishVolume")
	return o.backend.ControllerUnpublishVolume(ctx, r)
}

// edit changes what is to be created.
type edit = func(*storagev1.VolumeAttachment, *corev1.PersistentVolume)

// create makes a volume and a VolumeAttachment of it.
func (o *outside) create(edits ...edit) {
	o.t.Helper()
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: stepDriver, NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")}}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: stepDriver, VolumeHandle: "v"}}}}
	for _, edit := range edits {
		edit(va, pv)
	}
	if _, err := o.kube.CoreV1().PersistentVolumes().Create(o.t.Context(), pv, metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.kube.StorageV1().VolumeAttachments().Create(o.t.Context(), va, metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outside) delete() {
	o.t.Helper()
	must(o.t, o.kube.StorageV1().VolumeAttachments().Delete(o.t.Context(), "va", metav1.DeleteOptions{}))
}

func (o *outside) attachment() *storagev1.VolumeAttachment {
	o.t.Helper()
	va, err := o.kube.StorageV1().VolumeAttachments().Get(o.t.Context(), "va", metav1.GetOptions{})
	must(o.t, err)
	return va
}

func (o *outside) volume() *corev1.PersistentVolume {
	o.t.Helper()
	pv, err := o.kube.CoreV1().PersistentVolumes().Get(o.t.Context(), "pv", metav1.GetOptions{})
	must(o.t, err)
	return pv
}

// plan decides on the objects as they are now.
func (o *outside) plan() attach.Plan {
	o.t.Helper()
	plan, err := o.decider.Decide(attach.Inputs{VolumeAttachment: o.attachment(), PersistentVolume: attach.VolumeOf(o.volume()),
		CSINode: &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: stepDriver, NodeID: cmp.Or(o.nodeID, "id-n")}}}}})
	must(o.t, err)
	return plan
}

// readFrom reads Secrets, for an Attacher.
func readFrom(kube kubernetes.Interface) func(context.Context, corev1.SecretReference) (*corev1.Secret, error) {
	return func(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error) {
		return kube.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	}
}

// callTo makes calls, for an Attacher.
func callTo(c attach.Controller) func(context.Context, string, func(context.Context, attach.Controller) error) error {
	return func(ctx context.Context, _ string, do func(context.Context, attach.Controller) error) error {
		return do(ctx, c)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
