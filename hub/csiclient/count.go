package csiclient

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// CallFunc is told each call when it has ended: its full gRPC path, the code of the
// answer and how long it took. It is called from many goroutines and must not block.
type CallFunc func(method string, code codes.Code, took time.Duration)

// Connect dials the endpoint of a driver once and verifies the driver behind it. It
// blocks until the Session is ready, something failed (ErrNotReady, *NameError, what
// is wrong with dialling or TLS and on which side, or the gRPC status of the call
// that failed) or ctx ends. The files of the driver's TLS are read anew each time.
// count is called for all calls of the Session, those that verify the driver too; it may be nil.
// The caller owns the Session and closes it.
func Connect(ctx context.Context, d registry.Driver, count CallFunc) (*Session, error) {
	return connector{filePoll: pollFiles, count: count}.connect(ctx, d)
}

// counting returns what tells count.
func counting(count CallFunc) grpc.DialOption {
	return grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		begin := time.Now()
		err := invoke(ctx, method, req, reply, conn, opts...)
		count(method, status.Code(err), time.Since(begin))
		return err
	})
}
