package csiclient

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CallFunc takes a call that has ended: its full gRPC path, the code of the answer and
// how long the call took. It is called from many goroutines and must not block.
type CallFunc func(method string, code codes.Code, took time.Duration)

// counting has count called for each call of a connection.
func counting(count CallFunc) grpc.DialOption {
	return grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		begin := time.Now()
		err := invoke(ctx, method, req, reply, conn, opts...)
		count(method, status.Code(err), time.Since(begin))
		return err
	})
}
