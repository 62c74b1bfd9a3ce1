package csiclient

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/csi-attach-hub/csi-attach-hub/internal/http2frames"
)

// LastCheck decides whether a call that takes at most longest may still begin. It must not
// block.
type LastCheck func(longest time.Duration) error

type lastCheckKey struct{}

// WithLastCheck has a call checked right before its first byte is sent. A deadline is sent
// as the time that is left. If the process is stopped after that was computed and before
// it is sent, the driver gets the call with all that time when the process goes on. If
// the check fails, nothing is sent and the connection ends: gRPC cannot take a single call
// back.
func WithLastCheck(ctx context.Context, check LastCheck) context.Context {
	return context.WithValue(ctx, lastCheckKey{}, check)
}

// sendGuard tracks the calls of one connection whose HEADERS frame is not yet on the wire,
// and has each checked right before that is sent. gRPC sends the frame of a call that has
// ended meanwhile all the same, so such calls stay until then.
type sendGuard struct {
	mu      sync.Mutex
	pending []*pendingCall       // in the order in which they began; guarded by mu
	sent    *http2frames.Scanner // guarded by mu
}

// pendingCall is a call whose HEADERS frame is not yet on the wire.
type pendingCall struct {
	check   LastCheck // nil: there is none
	longest time.Duration
	queued  bool // gRPC will send the HEADERS frame, or has; guarded by sendGuard.mu
}

type pendingCallKey struct{}

func newSendGuard() *sendGuard { return &sendGuard{sent: http2frames.NewClientScanner()} }

// TagRPC implements stats.Handler.
func (g *sendGuard) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler. gRPC reports OutHeader when it has queued the HEADERS
// frame, before the call can end.
func (g *sendGuard) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutHeader); !ok {
		return
	}
	if call, ok := ctx.Value(pendingCallKey{}).(*pendingCall); ok {
		g.mu.Lock()
		defer g.mu.Unlock()
		call.queued = true
	}
}

// TagConn implements stats.Handler.
func (g *sendGuard) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (g *sendGuard) HandleConn(context.Context, stats.ConnStats) {}

// call is a grpc.UnaryClientInterceptor.
func (g *sendGuard) call(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := &pendingCall{}
	call.check, _ = ctx.Value(lastCheckKey{}).(LastCheck)
	if deadline, ok := ctx.Deadline(); ok {
		call.longest = time.Until(deadline)
	}
	g.mu.Lock()
	g.pending = append(g.pending, call)
	g.mu.Unlock()
	defer g.forget(call)
	return invoke(context.WithValue(ctx, pendingCallKey{}, call), method, req, reply, cc, opts...)
}

// forget drops a call that has ended, if its HEADERS frame will never be sent.
func (g *sendGuard) forget(call *pendingCall) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !call.queued {
		g.pending = slices.DeleteFunc(g.pending, func(c *pendingCall) bool { return c == call })
	}
}

// check returns an error if a call begins in the bytes that may not be sent. Calls may
// overtake one another on the way to the wire by a moment, which makes no difference.
func (g *sendGuard) check(b []byte) error {
	g.mu.Lock()
	n := min(g.sent.Count(b, http2.FrameHeaders), len(g.pending))
	leaving := slices.Clone(g.pending[:n])
	g.pending = slices.Delete(g.pending, 0, n)
	g.mu.Unlock()
	for _, call := range leaving {
		if call.check == nil {
			continue
		}
		if err := call.check(call.longest); err != nil {
			return fmt.Errorf("send a call: %w", err)
		}
	}
	return nil
}
