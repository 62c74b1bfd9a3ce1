package status

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Result is how an operation ended. It has few values, so that it can be a label.
type Result string

const (
	Success     Result = "success"
	Unavailable Result = "unavailable" // the driver is away or busy: Unavailable, Aborted, ResourceExhausted
	Timeout     Result = "timeout"     // DeadlineExceeded, Canceled
	Refused     Result = "refused"     // the driver rejects the call: InvalidArgument, NotFound, ...
	Kubernetes  Result = "kubernetes"  // the API server rejected a read or a write
	Failed      Result = "error"       // all others: Internal, Unknown, missing objects
)

// Results are all results.
var Results = []Result{Success, Unavailable, Timeout, Refused, Kubernetes, Failed}

// ResultOf returns the Result of an operation that returned err.
func ResultOf(err error) Result {
	var fromAPI apierrors.APIStatus
	switch {
	case err == nil:
		return Success
	case errors.As(err, &fromAPI):
		return Kubernetes
	}
	if s, ok := status.FromError(err); ok {
		return resultOfCode(s.Code())
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Timeout
	}
	return Failed
}

func resultOfCode(code codes.Code) Result {
	switch code {
	case codes.OK:
		return Success
	case codes.Unavailable, codes.Aborted, codes.ResourceExhausted:
		return Unavailable
	case codes.DeadlineExceeded, codes.Canceled:
		return Timeout
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return Refused
	}
	return Failed
}
