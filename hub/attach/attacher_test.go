package attach

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// scene is one volume on a real API server, and an Attacher of a fake driver whose
// requests to that server are written down.
type scene struct {
	t       *testing.T
	kube    kubernetes.Interface // of others: its requests are not written down
	backend *fakecsi.Backend
	name    string // of the VolumeAttachment and the PersistentVolume
	Attacher

	mu     sync.Mutex
	writes []string // guarded by mu
}

// scenes counts the scenes of this test process: they share the API server.
var scenes atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	plane := testbed.Shared(t)
	backend, err := fakecsi.New(fakecsi.Options{Name: driverName})
	must(t, err)
	s := &scene{t: t, kube: plane.Clientset(), backend: backend, name: fmt.Sprintf("scene-%d", scenes.Add(1))}
	config := plane.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return listening{s, next} })
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	s.Attacher = Attacher{
		Writer: Writer{Kube: client, Limit: unlimited, Fence: unlimited, Written: s, FinalizerWrites: &singleflight.Group{}},
		ReadSecret: func(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error) {
			return client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		},
		Call: func(ctx context.Context, _ string, do func(context.Context, Controller) error) error {
			return do(ctx, backend)
		}, CallTimeout: time.Minute, Redactor: &Redactor{}}
	err = testbed.NewCluster(s.kube).Create(t.Context(), testbed.PersistentVolume{Name: s.name, Driver: driverName, Handle: s.name})
	must(t, err)
	err = testbed.NewCluster(s.kube).Create(t.Context(), testbed.VolumeAttachment{Name: s.name, Driver: driverName, Node: "node-1", PersistentVolume: s.name})
	must(t, err)
	return s
}

// listening writes down what is asked of the API server besides reading.
type listening struct {
	scene *scene
	next  http.RoundTripper
}

func (l listening) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		l.scene.mu.Lock()
		l.scene.writes = append(l.scene.writes, r.Method+" "+r.URL.Path)
		l.scene.mu.Unlock()
	}
	return l.next.RoundTrip(r)
}

func (s *scene) VolumeAttachmentWritten(*storagev1.VolumeAttachment) {}
func (s *scene) PersistentVolumeWritten(*Volume)                     {}

func (s *scene) inputs() Inputs {
	return Inputs{VolumeAttachment: s.attachment(), PersistentVolume: s.volume(), CSINode: csiNode("id-1")}
}

func (s *scene) attachment() *storagev1.VolumeAttachment {
	s.t.Helper()
	va, err := s.kube.StorageV1().VolumeAttachments().Get(s.t.Context(), s.name, metav1.GetOptions{})
	must(s.t, err)
	return va
}

func (s *scene) volume() *Volume {
	s.t.Helper()
	pv, err := s.kube.CoreV1().PersistentVolumes().Get(s.t.Context(), s.name, metav1.GetOptions{})
	must(s.t, err)
	return VolumeOf(pv)
}

func (s *scene) plan(d Driver) Plan {
	s.t.Helper()
	plan, err := d.Decide(s.inputs())
	must(s.t, err)
	return plan
}

// attach makes all steps of an attach.
func (s *scene) attach() {
	s.t.Helper()
	plan := s.plan(attaching)
	must(s.t, s.AddFinalizers(s.t.Context(), plan))
	if plan.Publish == nil { // only the finalizer was missing
		return
	}
	publishContext, err := s.Publish(s.t.Context(), plan, nil)
	must(s.t, err)
	must(s.t, s.MarkAttached(s.t.Context(), s.attachment(), plan.Target, publishContext))
}

func (s *scene) delete() {
	s.t.Helper()
	must(s.t, s.kube.StorageV1().VolumeAttachments().Delete(s.t.Context(), s.name, metav1.DeleteOptions{}))
}

// markUnattached makes the status that of an attachment which is not done yet.
func (s *scene) markUnattached() {
	s.t.Helper()
	va := s.attachment()
	va.Status = storagev1.VolumeAttachmentStatus{}
	if _, err := s.kube.StorageV1().VolumeAttachments().UpdateStatus(s.t.Context(), va, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// unlimited lets every write pass.
func unlimited(context.Context) error { return nil }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
