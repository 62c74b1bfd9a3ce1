package fakecsi

import (
	"context"

	"google.golang.org/grpc"
)

type callerKey struct{}

// withCaller notes in the context of each call who makes it.
func withCaller(name string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		return handle(context.WithValue(ctx, callerKey{}, name), request)
	}
}

// callerOf returns the name that withCaller has noted; empty if it has not.
func callerOf(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}
