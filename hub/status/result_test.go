package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestResultsOfErrors(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, tc := range []struct {
		err  error
		want Result
	}{
		{nil, Success},
		{status.Error(codes.Unavailable, ""), Unavailable},
		{status.Error(codes.Aborted, ""), Unavailable},
		{fmt.Errorf("publish: %w", status.Error(codes.ResourceExhausted, "")), Unavailable},
		{errors.Join(errors.New("away"), status.Error(codes.Unavailable, "")), Unavailable},
		{status.Error(codes.DeadlineExceeded, ""), Timeout},
		{fmt.Errorf("publish: %w", context.DeadlineExceeded), Timeout},
		{context.Canceled, Timeout},
		{status.Error(codes.NotFound, ""), Refused},
		{status.Error(codes.InvalidArgument, ""), Refused},
		{status.Error(codes.FailedPrecondition, ""), Refused},
		{status.Error(codes.Internal, ""), Failed},
		{status.Error(codes.Unknown, ""), Failed},
		{status.Error(codes.Code(99), ""), Failed},
		{fmt.Errorf("patch: %w", apierrors.NewNotFound(nodes, "n")), Kubernetes},
		{apierrors.NewTimeoutError("", 1), Kubernetes},
		{errors.New("the node has no such driver"), Failed},
	} {
		if got := ResultOf(tc.err); got != tc.want {
			t.Errorf("%v: got %s, want %s", tc.err, got, tc.want)
		}
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if got := ResultOf(status.Error(code, "")); !slices.Contains(Results, got) || (got == Success) != (code == codes.OK) {
			t.Errorf("%s: got %s", code, got)
		}
	}
}
