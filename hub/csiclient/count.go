package csiclient

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CallFunc takes a call that has ended: its full gRPC path, the code of the answer and
// the length of the call. It must be safe for concurrent use and must not block.
type CallFunc func(method string, code codes.Code, took time.Duration)

// counting returns the option that calls count for each call of a connection.
func counting(count CallFunc) grpc.DialOption {
	return grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		begin := time.Now()
		err := invoke(ctx, method, req, reply, conn, opts...)
		count(method, status.Code(err), time.Since(begin))
		return err
	})
}
