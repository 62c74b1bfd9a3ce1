package attach

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

	asked atomic.Int32 // how often the limit was asked
	deny  atomic.Pointer[error]

	mu     sync.Mutex
	writes []string // guarded by mu
}

// scenes counts the scenes of this test process: they share the API server.
var scenes atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	plane := testbed.Shared(t)
	backend, err := fakecsi.New(fakecsi.Options{Name: driverName})
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, kube: plane.Clientset(), backend: backend, name: fmt.Sprintf("scene-%d", scenes.Add(1))}
	config := plane.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return listening{s, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Attacher = Attacher{
		Writer: Writer{Kube: client, Limit: s.wait, Fence: func(context.Context) error { return nil }, Written: s, FinalizerWrites: &singleflight.Group{}},
		ReadSecret: func(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error) {
			return client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		},
		Call: func(ctx context.Context, _ string, do func(context.Context, Controller) error) error {
			return do(ctx, backend)
		}, CallTimeout: time.Minute, Redactor: &Redactor{}}
	err = testbed.NewCluster(s.kube).Create(t.Context(), testbed.PersistentVolume{Name: s.name, Driver: driverName, Handle: s.name})
	if err != nil {
		t.Fatal(err)
	}
	err = testbed.NewCluster(s.kube).Create(t.Context(), testbed.VolumeAttachment{Name: s.name, Driver: driverName, Node: "node-1", PersistentVolume: s.name})
	if err != nil {
		t.Fatal(err)
	}
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

// wait is the Limit.
func (s *scene) wait(ctx context.Context) error {
	s.asked.Add(1)
	if _, limited := ctx.Deadline(); limited {
		s.t.Error("what the limit waits is taken from the time of the request")
	}
	if err := s.deny.Load(); err != nil {
		return *err
	}
	return nil
}

// heard returns the writes since the last time, in order of their paths.
func (s *scene) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.writes
	s.writes = nil
	slices.Sort(said)
	return said
}

func (s *scene) inputs() Inputs {
	return Inputs{VolumeAttachment: s.attachment(), PersistentVolume: s.volume(), CSINode: csiNode("id-1")}
}

func (s *scene) attachment() *storagev1.VolumeAttachment {
	s.t.Helper()
	va, err := s.kube.StorageV1().VolumeAttachments().Get(s.t.Context(), s.name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return va
}

func (s *scene) volume() *Volume {
	s.t.Helper()
	pv, err := s.kube.CoreV1().PersistentVolumes().Get(s.t.Context(), s.name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return VolumeOf(pv)
}

func (s *scene) plan(d Driver) Plan {
	s.t.Helper()
	plan, err := d.Decide(s.inputs())
	if err != nil {
		s.t.Fatal(err)
	}
	return plan
}

// attach makes all steps of an attach.
func (s *scene) attach() {
	s.t.Helper()
	plan := s.plan(attaching)
	if err := s.AddFinalizers(s.t.Context(), plan); err != nil {
		s.t.Fatal(err)
	}
	if plan.Publish == nil { // only the finalizer was missing
		return
	}
	publishContext, err := s.Publish(s.t.Context(), plan, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.MarkAttached(s.t.Context(), s.attachment(), plan.Target, publishContext); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) delete() {
	s.t.Helper()
	if err := s.kube.StorageV1().VolumeAttachments().Delete(s.t.Context(), s.name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func TestNoWriteReachesTheAPIServerThatTheLimitRefuses(t *testing.T) {
	// An error that looks like the API server's own answer must not be taken for it.
	no := error(apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "gone"))
	for _, tc := range []struct {
		name    string
		prepare func(*scene)
		act     func(*scene) error
	}{
		{"finalizers of an attach", nil,
			func(s *scene) error { return s.AddFinalizers(t.Context(), s.plan(attaching)) }},
		{"status of a driver without calls", nil,
			func(s *scene) error { return s.MarkAttached(t.Context(), s.attachment(), s.plan(trivial).Target, nil) }},
		{"status after the call", func(s *scene) { s.attach(); s.markUnattached() },
			func(s *scene) error {
				return s.MarkAttached(t.Context(), s.attachment(), s.plan(attaching).Target, map[string]string{"a": "b"})
			}},
		{"finalizer of a detach", func(s *scene) { s.attach(); s.delete() },
			func(s *scene) error {
				_, err := s.RemoveFinalizer(t.Context(), s.attachment())
				return err
			}},
		{"status after the finalizer of a detach", (*scene).attach,
			func(s *scene) error { return s.MarkDetached(t.Context(), s.attachment()) }},
		{"finalizer of a PersistentVolume", (*scene).attach,
			func(s *scene) error {
				pv := s.volume()
				pv.Deleted = ptr(metav1.Now())
				return s.RemoveVolumeFinalizer(t.Context(), pv, driverName)
			}},
		{"error of an attach", nil,
			func(s *scene) error {
				return s.SaveError(t.Context(), s.attachment(), Attaching, errors.New("no"))
			}},
		{"error of a detach", nil,
			func(s *scene) error {
				return s.SaveError(t.Context(), s.attachment(), Detaching, errors.New("no"))
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t)
			if tc.prepare != nil {
				tc.prepare(s)
			}
			s.heard()
			s.asked.Store(0)
			was, wasVolume := s.attachment(), s.volume()
			s.deny.Store(&no)
			err := tc.act(s)
			if !errors.Is(err, no) || !errors.Is(err, ErrRefused) || !NotReady(err) {
				t.Errorf("error %v: want the reason for the refusal in it, and nothing that is for the status", err)
			}
			if said := s.heard(); len(said) > 0 {
				t.Errorf("the API server was asked for %v", said)
			}
			if va, pv := s.attachment(), s.volume(); va.ResourceVersion != was.ResourceVersion || pv.ResourceVersion != wasVolume.ResourceVersion {
				t.Errorf("objects have changed: %+v, %+v", va, pv)
			}
			if s.asked.Load() == 0 {
				t.Error("the limit was not asked")
			}
		})
	}
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
