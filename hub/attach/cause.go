package attach

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// causeError is an error whose verdict is known. Its text is part of a message that users see.
type causeError struct {
	text    string
	verdict diagnosis.Verdict
}

func (e *causeError) Error() string { return e.text }

// The errors of missing or unusable objects.
var (
	errVolumeMissing      = &causeError{"not found", diagnosis.VolumeMissing}
	errVolumeBeingDeleted = &causeError{"is being deleted", diagnosis.VolumeBeingDeleted}
	errVolumeNotCSI       = &causeError{"is neither a CSI volume nor one that is migrated to CSI", diagnosis.VolumeNotCSI}
	errVolumeRecreated    = &causeError{"was recreated", diagnosis.VolumeRecreated}
	errNodeWithoutCSI     = &causeError{"the node is gone, or its kubelet has registered no CSI driver yet", diagnosis.NodeWithoutCSI}
	errNodeWithoutDriver  = &causeError{"the driver's node plugin is not registered there", diagnosis.NodeWithoutDriver}
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

// CauseOf returns the cause of an operation's error, the zero Cause if only the error's text is known.
func CauseOf(err error) diagnosis.Cause {
	if call, ok := errors.AsType[*CallError](err); ok {
		if answer, ok := status.FromError(call.Err); ok {
			return diagnosis.Cause{Verdict: diagnosis.BackendError, Code: answer.Code().String()}
		}
		return diagnosis.Cause{}
	}
	if known, ok := errors.AsType[*causeError](err); ok {
		return diagnosis.Cause{Verdict: known.verdict}
	}
	if _, ok := errors.AsType[*secretError](err); ok {
		if apierrors.IsForbidden(err) {
			return diagnosis.Cause{Verdict: diagnosis.SecretForbidden}
		}
		return diagnosis.Cause{Verdict: diagnosis.SecretMissing}
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

// CauseOfStatus returns the cause of an error in the status of a VolumeAttachment.
func CauseOfStatus(e *storagev1.VolumeError) diagnosis.Cause {
	code := ""
	if e.ErrorCode != nil {
		code = codes.Code(*e.ErrorCode).String()
	}
	cause, _ := diagnosis.Parse(e.Message, code)
	return cause
}
