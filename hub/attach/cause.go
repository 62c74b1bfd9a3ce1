package attach

import (
	"errors"

	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// The errors of missing or unusable objects. Their texts are parts of the messages that users see.
var (
	errVolumeMissing      = errors.New("not found")
	errVolumeBeingDeleted = errors.New("is being deleted")
	errVolumeNotCSI       = errors.New("is neither a CSI volume nor one that is migrated to CSI")
	errVolumeRecreated    = errors.New("was recreated")
	errNodeWithoutCSI     = errors.New("the node is gone, or its kubelet has registered no CSI driver yet")
	errNodeWithoutDriver  = errors.New("the driver's node plugin is not registered there")
)

// secretError is the error of reading the secret of a call.
type secretError struct {
	name string // with its namespace
	err  error
}

func (e *secretError) Error() string {
	return "read secret " + e.name + " for the call: " + e.err.Error()
}
func (e *secretError) Unwrap() error { return e.err }

// causes maps the errors of this package to verdicts.
var causes = []struct {
	err     error
	verdict diagnosis.Verdict
}{
	{errVolumeMissing, diagnosis.VolumeMissing},
	{errVolumeBeingDeleted, diagnosis.VolumeBeingDeleted},
	{errVolumeNotCSI, diagnosis.VolumeNotCSI},
	{errVolumeRecreated, diagnosis.VolumeRecreated},
	{errNodeWithoutCSI, diagnosis.NodeWithoutCSI},
	{errNodeWithoutDriver, diagnosis.NodeWithoutDriver},
	{ErrStale, diagnosis.ObjectChanged},
	{ErrRefused, diagnosis.WriteForbidden},
}

// CauseOf returns the cause of an operation's error, the zero Cause if only the error's text is known.
func CauseOf(err error) diagnosis.Cause {
	if call, ok := errors.AsType[*CallError](err); ok {
		if answer, ok := status.FromError(call.Err); ok {
			return diagnosis.Cause{Verdict: diagnosis.BackendError, Code: answer.Code().String()}
		}
		return diagnosis.Cause{}
	}
	if _, ok := errors.AsType[notAllowedError](err); ok {
		return diagnosis.Cause{Verdict: diagnosis.SecretNotAllowed}
	}
	if _, ok := errors.AsType[*secretError](err); ok {
		if apierrors.IsForbidden(err) {
			return diagnosis.Cause{Verdict: diagnosis.SecretForbidden}
		}
		return diagnosis.Cause{Verdict: diagnosis.SecretMissing}
	}
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return diagnosis.Cause{Verdict: c.verdict}
		}
	}
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok {
		// The API server has no type for admission: a webhook chooses the code of its refusal.
		switch c, _ := diagnosis.Parse(err.Error(), ""); c.Verdict {
		case diagnosis.WebhookFailed, diagnosis.AdmissionDenied, diagnosis.TooManyRequests:
			return c
		}
	}
	if apierrors.IsForbidden(err) {
		return diagnosis.Cause{Verdict: diagnosis.WriteForbidden}
	}
	return diagnosis.Cause{}
}
