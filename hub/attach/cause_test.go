package attach

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// The text of an error is all that a restarted hub and explain have: it is written into the
// VolumeAttachment.
func TestCauseOfAnErrorIsThatOfItsText(t *testing.T) {
	decide := func(f Inputs) error {
		_, err := attaching.Decide(f)
		return err
	}
	secrets := schema.GroupResource{Resource: "secrets"}
	recreated := attachment(attached, deleted, guarded)
	recreated.Name, recreated.CreationTimestamp = "csi-"+longHash, metav1.NewTime(time.Unix(1, 0))
	for name, tt := range map[string]struct {
		err  error
		want diagnosis.Cause
	}{
		"no PersistentVolume": {decide(Inputs{VolumeAttachment: attachment(), CSINode: csiNode("id")}), diagnosis.Cause{Verdict: diagnosis.VolumeMissing}},
		"PersistentVolume being deleted": {decide(Inputs{VolumeAttachment: attachment(), CSINode: csiNode("id"),
			PersistentVolume: volume(func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = ptr(metav1.Now()) })}), diagnosis.Cause{Verdict: diagnosis.VolumeBeingDeleted}},
		"not a CSI volume": {decide(Inputs{VolumeAttachment: attachment(), CSINode: csiNode("id"),
			PersistentVolume: volume(func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil })}), diagnosis.Cause{Verdict: diagnosis.VolumeNotCSI}},
		"no CSINode": {decide(Inputs{VolumeAttachment: attachment(), PersistentVolume: volume()}), diagnosis.Cause{Verdict: diagnosis.NodeWithoutCSI}},
		"driver not on the node": {decide(Inputs{VolumeAttachment: attachment(), PersistentVolume: volume(), CSINode: &storagev1.CSINode{}}),
			diagnosis.Cause{Verdict: diagnosis.NodeWithoutDriver}},
		"PersistentVolume recreated": {decide(Inputs{VolumeAttachment: recreated, CSINode: csiNode("id"),
			PersistentVolume: volume(func(pv *corev1.PersistentVolume) { pv.CreationTimestamp = metav1.NewTime(time.Unix(2, 0)) })}),
			diagnosis.Cause{Verdict: diagnosis.VolumeRecreated}},
		"secret not found":     {fmt.Errorf("read secret ns/s for the call: %w", apierrors.NewNotFound(secrets, "s")), diagnosis.Cause{Verdict: diagnosis.SecretMissing}},
		"secret forbidden":     {fmt.Errorf("read secret ns/s for the call: %w", apierrors.NewForbidden(secrets, "s", errors.New("no"))), diagnosis.Cause{Verdict: diagnosis.SecretForbidden}},
		"answer of the driver": {&CallError{Err: status.Error(codes.ResourceExhausted, "full")}, diagnosis.Cause{Verdict: diagnosis.BackendError, Code: "ResourceExhausted"}},
		"answer of the driver that looks like an error of the hub": {&CallError{Err: status.Error(codes.Internal, `csinode "node-1" not found`)},
			diagnosis.Cause{Verdict: diagnosis.BackendError, Code: "Internal"}},
		"object changed":  {stale(apierrors.NewConflict(secrets, "s", errors.New("later"))), diagnosis.Cause{Verdict: diagnosis.ObjectChanged}},
		"write forbidden": {apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "pv-1", errors.New("no")), diagnosis.Cause{Verdict: diagnosis.WriteForbidden}},
		"webhook that does not answer": {fmt.Errorf("add finalizer: %w", apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.com": failed to call webhook: Post "https://guard.svc": no endpoints`))),
			diagnosis.Cause{Verdict: diagnosis.WebhookFailed}},
		"webhook that refuses": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Message: `admission webhook "guard.example.com" denied the request: forbidden on Fridays`}},
			diagnosis.Cause{Verdict: diagnosis.AdmissionDenied}},
		"policy that refuses":                       {apierrors.NewForbidden(secrets, "pv-1", errors.New("ValidatingAdmissionPolicy 'guard' with binding 'all' denied request: no")), diagnosis.Cause{Verdict: diagnosis.AdmissionDenied}},
		"too many requests":                         {apierrors.NewTooManyRequestsError("the server has received too many requests and has asked us to try again later"), diagnosis.Cause{Verdict: diagnosis.TooManyRequests}},
		"answer of the driver with a webhook in it": {&CallError{Err: status.Error(codes.Internal, `failed calling webhook "x"`)}, diagnosis.Cause{Verdict: diagnosis.BackendError, Code: "Internal"}},
		"anything else":                             {errors.New("odd"), diagnosis.Cause{}},
	} {
		if tt.err == nil {
			t.Fatalf("%s: no error", name)
		}
		if got, _ := diagnosis.Parse(tt.err.Error(), ""); got != tt.want {
			t.Errorf("%s: the text %q is taken for %+v, want %+v", name, tt.err, got, tt.want)
		}
	}
}

// longHash is of no volume of these tests.
const longHash = "0000000000000000000000000000000000000000000000000000000000000000"
