package attach_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

func guarded(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) {
	va.Finalizers, pv.Finalizers = []string{attach.Finalizer(stepDriver)}, []string{attach.Finalizer(stepDriver)}
	va.Annotations = map[string]string{attach.AnnotationNodeID: "id-n", attach.AnnotationVolumeHandle: "v"}
}

func attached(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) {
	guarded(va, pv)
	va.Status.Attached = true
}

// withOther has a finalizer of somebody else on the VolumeAttachment.
func withOther(va *storagev1.VolumeAttachment, _ *corev1.PersistentVolume) {
	va.Finalizers = append(va.Finalizers, "example.com/other")
}

// step is one step of an Attacher, on objects that it finds as edits have made them.
type step struct {
	name    string
	edits   []edit
	deleted bool // the VolumeAttachment is being deleted
	act     func(*outside, attach.Attacher, attach.Plan) error
	does    string // the one request or call
	records string // the kind of object that was written
}

func writingSteps() []step {
	return []step{
		{"finalizer of the PersistentVolume", []edit{attached, func(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) {
			va.Status.Attached, pv.Finalizers = false, nil
		}}, false, func(o *outside, a attach.Attacher, p attach.Plan) error { return a.AddFinalizers(o.t.Context(), p) },
			"patch persistentvolumes", "PersistentVolume"},
		{"finalizer of the VolumeAttachment", []edit{guarded, func(va *storagev1.VolumeAttachment, _ *corev1.PersistentVolume) {
			va.Finalizers = nil
		}}, false, func(o *outside, a attach.Attacher, p attach.Plan) error { return a.AddFinalizers(o.t.Context(), p) },
			"patch volumeattachments", "VolumeAttachment"},
		{"MarkAttached", []edit{guarded}, false, func(o *outside, a attach.Attacher, p attach.Plan) error {
			return a.MarkAttached(o.t.Context(), o.attachment(), p.Target, map[string]string{"devicePath": "/dev/x"})
		}, "patch volumeattachments/status", "VolumeAttachment"},
		{"RemoveFinalizer", []edit{attached}, true, func(o *outside, a attach.Attacher, _ attach.Plan) error {
			_, err := a.RemoveFinalizer(o.t.Context(), o.attachment())
			return err
		}, "patch volumeattachments", "VolumeAttachment"},
		{"MarkDetached", []edit{attached, withOther}, true, func(o *outside, a attach.Attacher, _ attach.Plan) error {
			return a.MarkDetached(o.t.Context(), o.attachment())
		}, "patch volumeattachments/status", "VolumeAttachment"},
		{"RemoveVolumeFinalizer", []edit{attached}, true, func(o *outside, a attach.Attacher, _ attach.Plan) error {
			pv := o.volume()
			pv.DeletionTimestamp = new(metav1.Now())
			return a.RemoveVolumeFinalizer(o.t.Context(), attach.VolumeOf(pv), o.decider.Name)
		}, "patch persistentvolumes", "PersistentVolume"},
		{"SaveError of an attach", nil, false, func(o *outside, a attach.Attacher, _ attach.Plan) error {
			return a.SaveError(o.t.Context(), o.attachment(), attach.Attaching, errors.New("no"))
		}, "patch volumeattachments/status", "VolumeAttachment"},
		{"SaveError of a detach", nil, false, func(o *outside, a attach.Attacher, _ attach.Plan) error {
			return a.SaveError(o.t.Context(), o.attachment(), attach.Detaching, errors.New("no"))
		}, "patch volumeattachments/status", "VolumeAttachment"},
		{"ForgetError", []edit{attached, func(va *storagev1.VolumeAttachment, _ *corev1.PersistentVolume) {
			va.Status.AttachError = &storagev1.VolumeError{Message: "no"}
		}}, false, func(o *outside, a attach.Attacher, _ attach.Plan) error {
			return a.ForgetError(o.t.Context(), o.attachment(), attach.Attaching)
		}, "patch volumeattachments/status", "VolumeAttachment"},
	}
}

// take makes the step, and returns what it has done besides reading the objects of
// which the test makes it, and its error.
func (s step) take(o *outside) ([]string, error) {
	o.t.Helper()
	o.create(s.edits...)
	if s.deleted {
		o.delete()
	}
	plan := o.plan()
	a := o.attacher()
	err := s.act(o, a, plan)
	var events []string
	for _, event := range o.heard() {
		if event != "get volumeattachments" && event != "get persistentvolumes" {
			events = append(events, event)
		}
	}
	return events, err
}

func TestEachStepWritesOrCallsOnceAndEachWriteIsLimitedThenFencedThenSentThenRecorded(t *testing.T) {
	calls := []step{
		{name: "Secrets", act: func(o *outside, a attach.Attacher, _ attach.Plan) error {
			_, err := a.Secrets(o.t.Context(), &corev1.SecretReference{Namespace: "ns", Name: "s"})
			return err
		}, does: "get secrets"},
		{name: "Publish", edits: []edit{guarded}, act: func(o *outside, a attach.Attacher, p attach.Plan) error {
			_, err := a.Publish(o.t.Context(), p, nil)
			return err
		}, does: "ControllerPublishVolume"},
		{name: "Unpublish", edits: []edit{attached}, deleted: true, act: func(o *outside, a attach.Attacher, p attach.Plan) error {
			return a.Unpublish(o.t.Context(), p.Target, nil)
		}, does: "ControllerUnpublishVolume"},
	}
	for _, s := range append(writingSteps(), calls...) {
		t.Run(s.name, func(t *testing.T) {
			o := newOutside(t)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"a": []byte("b")}}
			if _, err := o.kube.CoreV1().Secrets("ns").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			events, err := s.take(o)
			must(t, err)
			want := []string{s.does}
			if s.records != "" {
				want = []string{"limit", "fence", s.does, "record " + s.records}
			}
			if diff := cmp.Diff(want, events); diff != "" {
				t.Errorf("the step (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReleaseReturnsTheVolumeAttachmentOnlyIfItLivesOn(t *testing.T) {
	for _, tc := range []struct {
		name    string
		edits   []edit
		deleted bool
		gone    bool // before the finalizer is taken
		lives   bool
	}{
		{"last finalizer of what is being deleted", []edit{attached}, true, false, false},
		{"not the last finalizer", []edit{attached, withOther}, true, false, true},
		{"not being deleted", []edit{attached}, false, false, true}, // attachRequired became false
		{"gone before", []edit{attached}, true, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOutside(t)
			o.create(tc.edits...)
			if tc.deleted {
				o.delete()
			} else {
				o.decider.NoAttach = true
			}
			before := o.attachment()
			if tc.gone {
				if _, err := o.attacher().RemoveFinalizer(t.Context(), before); err != nil {
					t.Fatal(err)
				}
			}
			va, err := o.attacher().RemoveFinalizer(t.Context(), before)
			if err != nil || (va != nil) != tc.lives {
				t.Fatalf("%v, %v: want the object: %v", va, err, tc.lives)
			}
			if tc.lives && attach.HasFinalizer(va.Finalizers, attach.Finalizer(stepDriver)) {
				t.Errorf("finalizers %v", va.Finalizers)
			}
		})
	}
}

// The driver has registered another node ID meanwhile, and the publish context is that of the first one.
func TestLateWriteOfAttachedDoesNotAddAPublishContextToTheNoteOfAnotherNodeID(t *testing.T) {
	o := newOutside(t)
	o.create()
	late := o.plan()
	must(t, o.attacher().AddFinalizers(t.Context(), late))
	o.nodeID = "id-2"
	must(t, o.attacher().AddFinalizers(t.Context(), o.plan()))
	err := o.attacher().MarkAttached(t.Context(), o.attachment(), late.Target, map[string]string{"devicePath": "/dev/x"})
	if got := o.attachment(); !errors.Is(err, attach.ErrStale) || got.Status.Attached {
		t.Errorf("error %v, status %+v beside the note of %q", err, got.Status, attach.NotedTarget(got).NodeID)
	}
	if err := o.attacher().MarkAttached(t.Context(), o.attachment(), o.plan().Target, nil); err != nil {
		t.Error(err)
	}
}

// A plan may be kept for as long as its volume is worked on, and shown.
func TestPlanHoldsNoSecretsAfterItsCall(t *testing.T) {
	o := newOutside(t)
	o.create(guarded)
	plan := o.plan()
	publishContext, err := o.attacher().Publish(t.Context(), plan, map[string]string{"password": "hunter22"})
	if err != nil || len(publishContext) == 0 {
		t.Fatalf("publish context %v, %v", publishContext, err)
	}
	if got := o.backend.LastPublish("v").GetSecrets()["password"]; got == "" {
		t.Error("the driver was called without the secret")
	}
	if len(plan.Publish.Secrets) > 0 {
		t.Error("the plan holds the secret")
	}
}

// Only what is refused for good makes another call necessary.
func TestOnlyAnAnswerThatRefusesForGoodIsARejection(t *testing.T) {
	for code, want := range map[int]bool{
		http.StatusRequestEntityTooLarge: true,
		http.StatusForbidden:             true,
		http.StatusUnprocessableEntity:   false, // a test of the patch did not hold
		http.StatusConflict:              false,
		http.StatusNotFound:              false,
		http.StatusTooManyRequests:       false,
		http.StatusInternalServerError:   false,
		http.StatusServiceUnavailable:    false,
	} {
		o := newOutside(t)
		o.create(guarded)
		plan := o.plan()
		o.answer = code
		err := o.attacher().MarkAttached(t.Context(), o.attachment(), plan.Target, nil)
		if err == nil || attach.Rejected(err) != want {
			t.Errorf("%d: rejected %v, want %v: %v", code, attach.Rejected(err), want, err)
		}
	}
	if attach.Rejected(nil) || attach.Rejected(errors.New("connection reset")) {
		t.Error("rejected without an answer")
	}
}
