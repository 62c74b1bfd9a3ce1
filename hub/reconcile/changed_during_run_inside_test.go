package reconcile

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
)

// answerless loses answers to writes of a status.
type answerless struct {
	next  http.RoundTripper
	loses *bool
	done  bool // the writes take effect
}

func (l answerless) RoundTrip(r *http.Request) (*http.Response, error) {
	if !*l.loses || !strings.HasSuffix(r.URL.Path, "/status") {
		return l.next.RoundTrip(r)
	}
	if l.done {
		if _, err := l.next.RoundTrip(r); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), Request: r}, nil
}

func TestVolumeThatIsLostAfterAStatusWithoutAnswerIsPublishedAgain(t *testing.T) {
	loses := true
	inExecution(t, func(next http.RoundTripper) http.RoundTripper { return answerless{next, &loses, true} }, func(x *executing) {
		if err := x.look(); err == nil || !x.get().Status.Attached {
			t.Fatalf("%v", err)
		}
		loses = false
		x.catchUpCache()
		must(t, x.look())
		x.Table.SetLost(x.get(), true)
		must(t, x.look())
		if want := []string{"publish id", "publish id"}; !slices.Equal(x.recording.calls, want) {
			t.Errorf("calls %v, want %v; lost %v, %+v", x.recording.calls, want, x.Table.Look("va", x.get().UID).Lost, x.get().Status)
		}
	})
}

// The answer to the write of the error shows a change that the run has not used.
func TestChangeThatComesWithTheErrorOfARunEndsItsBackoff(t *testing.T) {
	inExecution(t, nil, func(x *executing) {
		x.recording.answer = func(string) error { return status.Error(codes.Internal, "broken") }
		changes := true
		x.api.Intercept(func(r fakekube.Request) int {
			if changes && r.Verb == "patch" && r.Resource == "volumeattachments/status" {
				changes = false
				va := x.get()
				va.Finalizers = nil
				if _, err := x.kube.StorageV1().VolumeAttachments().Update(x.t.Context(), va, metav1.UpdateOptions{}); err != nil {
					t.Error(err)
				}
			}
			return 0
		})
		x.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, queue.Destination{})
		x.workOnAttachment(x.t.Context(), x.start(x.t))
		if p, _ := x.Queue.Look(queue.AttachmentKey("va")); changes || p.State != queue.Delayed {
			t.Fatalf("changed %v, and the item is %v", !changes, p.State)
		}
		before := x.Overlay.Attachment("va")
		must(t, cachetest.Put(x.Cluster, x.get()))
		x.router.onAttachment(before, x.get(), false)
		if p, _ := x.Queue.Look(queue.AttachmentKey("va")); p.State == queue.Delayed {
			t.Error("its backoff goes on")
		}
	})
}

func TestErrorOfAReadThatFailsDoesNotEndItsOwnBackoff(t *testing.T) {
	inExecution(t, nil, func(x *executing) {
		forbidden := false
		x.api.Intercept(func(r fakekube.Request) int {
			switch {
			case r.Verb == "patch" && r.Resource == "volumeattachments": // it takes effect, and its answer is lost
				va := x.get()
				va.Finalizers = []string{x.Table.Finalizer}
				if _, err := x.kube.StorageV1().VolumeAttachments().Update(x.t.Context(), va, metav1.UpdateOptions{}); err != nil {
					t.Error(err)
				}
				return http.StatusInternalServerError
			case r.Verb == "get" && r.Resource == "volumeattachments" && forbidden:
				return http.StatusForbidden
			}
			return 0
		})
		work := func() {
			x.workOnAttachment(x.t.Context(), x.start(x.t))
			forbidden = false
			before := x.Overlay.Attachment("va")
			must(t, cachetest.Put(x.Cluster, x.get()))
			x.router.onAttachment(before, x.get(), false)
		}
		x.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, queue.Destination{})
		work()
		forbidden = true
		work()
		if p, _ := x.Queue.Look(queue.AttachmentKey("va")); x.get().Status.AttachError == nil || p.State != queue.Delayed {
			t.Errorf("the item is %v after the event of its error: %+v", p.State, x.get().Status)
		}
		if !x.Table.Look("va", x.get().UID).Unsure {
			t.Error("a read that failed counts as an answer to the write before")
		}
	})
}

type secretive struct {
	*recording
	got string
}

func (s *secretive) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	s.got = r.Secrets["key"]
	return s.recording.ControllerPublishVolume(ctx, r)
}

func TestPublishIsSentTheSecretThatItsRecordNames(t *testing.T) {
	inExecution(t, nil, func(x *executing) {
		s := &secretive{recording: x.recording}
		x.connectTo(s)
		for _, name := range []string{"first", "second"} {
			if _, err := x.kube.CoreV1().Secrets("ns").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Data: map[string][]byte{"key": []byte(name)}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		put := func(secret string) {
			v := *x.Overlay.Volume(*x.get().Spec.Source.PersistentVolumeName)
			v.SecretRef = &corev1.SecretReference{Namespace: "ns", Name: secret}
			v.Finalizers = []string{x.Table.Finalizer}
			must(t, cachetest.Put(x.Cluster, &v))
		}
		put("first")
		x.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "patch" && r.Resource == "volumeattachments" {
				put("second")
			}
			return 0
		})
		err := x.look()
		p := x.Table.Open(x.get())
		if s.got == "" || p.SecretRef == nil || s.got != p.SecretRef.Name {
			t.Errorf("%v: sent %q, recorded %+v", err, s.got, p.SecretRef)
		}
	})
}
