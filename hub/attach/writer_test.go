package attach_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

func TestRefusedWriteIsNeitherSentNorRecordedNorTakenForAnAnswerOfTheAPIServer(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "gone")
	for who, refuse := range map[string]func(*outside){
		"limit": func(o *outside) { o.limit = gone },
		"fence": func(o *outside) { o.fence = gone },
	} {
		for _, s := range writingSteps() {
			t.Run(who+"/"+s.name, func(t *testing.T) {
				o := newOutside(t)
				refuse(o)
				events, err := s.take(o)
				if !errors.Is(err, attach.ErrRefused) || !errors.Is(err, gone) {
					t.Errorf("error %v: want ErrRefused and the reason", err)
				}
				if !attach.NotReady(err) || attach.CannotServe(err) || attach.Rejected(err) || errors.Is(err, attach.ErrStale) {
					t.Errorf("error %v is taken for what it is not", err)
				}
				if slices.ContainsFunc(events, func(e string) bool { return e != "limit" && e != "fence" }) || !slices.Contains(events, who) {
					t.Errorf("%v: want to be refused by the %s, and nothing written", events, who)
				}
			})
		}
	}
}

func TestWriteThatFailsIsNotRecorded(t *testing.T) {
	for code, stale := range map[int]bool{
		http.StatusConflict:            true,
		http.StatusNotFound:            true,
		http.StatusUnprocessableEntity: true, // a test of the patch did not hold
		http.StatusForbidden:           false,
		http.StatusServiceUnavailable:  false,
	} {
		for _, s := range writingSteps() {
			t.Run(http.StatusText(code)+"/"+s.name, func(t *testing.T) {
				o := newOutside(t)
				o.answer = code
				events, err := s.take(o)
				// For what undoes or explains it is no error that the object is gone.
				if errors.Is(err, attach.ErrStale) != stale && (err != nil || code != http.StatusNotFound) {
					t.Errorf("error %v: want ErrStale: %v", err, stale)
				}
				if !slices.Contains(events, s.does) || slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, "record") }) {
					t.Errorf("%v: want it sent and not recorded", events)
				}
			})
		}
	}
}

// silent never answers a write.
type silent struct{ next http.RoundTripper }

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodPost {
		return s.next.RoundTrip(r)
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// slowLimit lets a write begin after an hour.
func slowLimit(context.Context) error {
	time.Sleep(time.Hour)
	return nil
}

func TestTimeoutOfAWriteBeginsWhenTheLimitLetsItPassAndIsToldTheFence(t *testing.T) {
	for name, tc := range map[string]struct{ timeout, want time.Duration }{
		"given":   {7 * time.Second, 7 * time.Second},
		"default": {0, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutside(t)
				o.create()
				va := o.attachment()
				var told time.Duration
				w := attach.Writer{
					Kube:  clientOn(silent{o.api}),
					Limit: slowLimit,
					Fence: func(ctx context.Context) error {
						deadline, _ := ctx.Deadline()
						told = time.Until(deadline)
						return nil
					},
					Timeout: tc.timeout,
				}
				began := time.Now()
				err := w.SaveError(t.Context(), va, attach.Attaching, errors.New("no"))
				if !errors.Is(err, context.DeadlineExceeded) || !attach.NotReady(err) {
					t.Errorf("error %v: want that the request has timed out", err)
				}
				if took := time.Since(began); took != time.Hour+tc.want || told != tc.want {
					t.Errorf("the write took %v and the fence was told %v, want an hour and %v", took, told, tc.want)
				}
			})
		})
	}
}

// noted passes requests on and keeps the parameters of each patch.
type noted struct {
	next    http.RoundTripper
	patches []url.Values
}

func (n *noted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		n.patches = append(n.patches, r.URL.Query())
	}
	return n.next.RoundTrip(r)
}

func TestWriteNamesItsManagerAndSparesTheAPIServerTheCheckForUnknownFields(t *testing.T) {
	for _, s := range writingSteps() {
		t.Run(s.name, func(t *testing.T) {
			o := newOutside(t)
			requests := &noted{next: o.api}
			o.kube = clientOn(requests)
			if _, err := s.take(o); err != nil {
				t.Fatal(err)
			}
			want := []url.Values{{"fieldManager": {attach.FieldManager}, "fieldValidation": {"Ignore"}}}
			if !reflect.DeepEqual(requests.patches, want) {
				t.Errorf("parameters of the patches: %v, want %v", requests.patches, want)
			}
		})
	}
}

// cutOff ends in the middle of the answers to writes of a status.
type cutOff struct {
	next http.RoundTripper
	err  error // with which the connection ends; nil: it does not
}

func (c *cutOff) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err == nil && c.err != nil && strings.HasSuffix(r.URL.Path, "/status") {
		response.Body = io.NopCloser(iotest.ErrReader(c.err))
	}
	return response, err
}

// An API server that ends in the middle of an answer has refused nothing: the driver was
// asked again for a volume that was attached, and the user was told of a read error.
func TestAnswerThatIsCutOffSaysNothingOfTheVolume(t *testing.T) {
	for name, ends := range map[string]error{
		"connection reset": &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
		"stream reset":     http2.StreamError{StreamID: 1, Code: http2.ErrCodeInternal},
		"told to go away":  errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=""`),
		"protocol error":   errors.New("connection error: PROTOCOL_ERROR"),
		"connection lost":  errors.New("http2: client connection lost"),
		"end of file":      io.ErrUnexpectedEOF,
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutside(t)
			o.create(guarded)
			o.kube = clientOn(&cutOff{o.api, ends})
			err := o.attacher().MarkAttached(t.Context(), o.attachment(), o.plan().Target, nil)
			if err == nil || !attach.NotReady(err) || attach.Rejected(err) {
				t.Errorf("%v: want an error that passes by itself", err)
			}
		})
	}
}

// clientOn returns a client of an API server.
func clientOn(server http.RoundTripper) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://api", Transport: server, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
}

// hold has others write the finalizers of both objects.
func (o *outside) hold(finalizers ...string) {
	o.t.Helper()
	va, pv := o.attachment(), o.volume()
	va.Finalizers, pv.Finalizers = finalizers, finalizers
	_, err := o.kube.StorageV1().VolumeAttachments().Update(o.t.Context(), va, metav1.UpdateOptions{})
	must(o.t, err)
	_, err = o.kube.CoreV1().PersistentVolumes().Update(o.t.Context(), pv, metav1.UpdateOptions{})
	must(o.t, err)
}

func (o *outside) wantHeld(want ...string) {
	o.t.Helper()
	if a, v := o.attachment().Finalizers, o.volume().Finalizers; !slices.Equal(a, want) || !slices.Equal(v, want) {
		o.t.Errorf("finalizers %q and %q, want %q", a, v, want)
	}
}

func wantStale(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, attach.ErrStale) || !attach.NotReady(err) {
		t.Errorf("%s: %v, want ErrStale, which nobody tries to save", what, err)
	}
}

func TestStalePlanLosesNobodysFinalizer(t *testing.T) {
	const one, two, three = "example.com/a", "example.com/b", "example.com/c"
	ours := attach.Finalizer(stepDriver)
	o := newOutside(t)
	o.create()
	stale, w := o.plan(), o.attacher()
	o.hold(one, two)
	wantStale(t, "add finalizers by a stale plan", w.AddFinalizers(t.Context(), stale))
	o.wantHeld(one, two)
	must(t, w.AddFinalizers(t.Context(), o.plan()))
	o.wantHeld(one, two, ours)

	o.hold(one, two, ours, three)
	o.delete()
	must(t, o.kube.CoreV1().PersistentVolumes().Delete(t.Context(), "pv", metav1.DeleteOptions{}))
	old, oldVolume := o.attachment(), attach.VolumeOf(o.volume())
	o.hold(two, ours, three) // where ours was is another one now
	_, err := w.RemoveFinalizer(t.Context(), old)
	wantStale(t, "remove the finalizer by a stale cache", err)
	wantStale(t, "release the volume by a stale cache", w.RemoveVolumeFinalizer(t.Context(), oldVolume, stepDriver))
	o.wantHeld(two, ours, three)
	_, err = w.RemoveFinalizer(t.Context(), o.attachment())
	must(t, err)
	must(t, w.RemoveVolumeFinalizer(t.Context(), attach.VolumeOf(o.volume()), stepDriver))
	o.wantHeld(two, three)
}

func TestPlanWritesNothingToANamesakeOfWhatItWasMadeFor(t *testing.T) {
	o := newOutside(t)
	o.create()
	stale, old, w := o.plan(), o.attachment(), o.attacher()
	o.delete()
	wantStale(t, "add finalizers to what is gone", w.AddFinalizers(t.Context(), stale))
	_, err := o.kube.StorageV1().VolumeAttachments().Create(t.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: old.Spec}, metav1.CreateOptions{})
	must(t, err)
	wantStale(t, "add finalizers", w.AddFinalizers(t.Context(), stale))
	wantStale(t, "save an error", w.SaveError(t.Context(), old, attach.Attaching, errors.New("why")))
	wantStale(t, "mark attached", w.MarkAttached(t.Context(), old, stale.Target, nil))
	if got := o.attachment(); len(got.Finalizers)+len(got.Annotations) > 0 || got.Status.Attached || got.Status.AttachError != nil {
		t.Errorf("written to the namesake: %+v", got)
	}
}

// Who reports many stuck volumes has looked at the last one long before.
func TestErrorIsNotWrittenToWhatIsAttachedMeanwhile(t *testing.T) {
	o := newOutside(t)
	o.create()
	plan, w := o.plan(), o.attacher()
	must(t, w.AddFinalizers(t.Context(), plan))
	old := o.attachment()
	must(t, w.MarkAttached(t.Context(), old, plan.Target, nil))
	wantStale(t, "save an error", w.SaveError(t.Context(), old, attach.Attaching, errors.New("stuck")))
	if got := o.attachment(); !got.Status.Attached || got.Status.AttachError != nil {
		t.Errorf("%+v, want attached without an error", got.Status)
	}
}

// Two processes have each made a plan.
func TestFinalizerOfAVolumeInUseTwiceIsThereOnce(t *testing.T) {
	o := newOutside(t)
	o.create(func(_ *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) {
		pv.Finalizers = []string{"example.com/a"}
	})
	plan := o.plan()
	plan.AttachmentFinalizer = nil
	must(t, o.attacher().AddFinalizers(t.Context(), plan))
	wantStale(t, "add the finalizer again", o.attacher().AddFinalizers(t.Context(), plan))
	if got := o.volume().Finalizers; !slices.Equal(got, []string{"example.com/a", attach.Finalizer(stepDriver)}) {
		t.Errorf("finalizers %q", got)
	}
}
