package csiclient

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// sendGuard tracks the calls of one connection whose HEADERS frame is not yet on the wire,
// and checks each right before the frame is sent. Once gRPC has queued the frame it sends it
// even if the call has ended, so such calls stay until then.
type sendGuard struct {
	mu      sync.Mutex
	pending []*pendingCall // in the order in which they began; guarded by mu
	sent    frameScanner   // guarded by mu
}

// pendingCall is a call whose HEADERS frame is not yet on the wire.
type pendingCall struct {
	check   LastCheck // may be nil
	longest time.Duration
	queued  bool // gRPC will send the HEADERS frame, or has; guarded by sendGuard.mu
}

type pendingCallKey struct{}

func newSendGuard() *sendGuard { return &sendGuard{sent: newFrameScanner()} }

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

// check returns an error if bytes contain the HEADERS frame of a call whose check fails. The
// order of the frames may differ slightly from the order of the calls: the checks of
// neighbouring calls give the same answer.
func (g *sendGuard) check(b []byte) error {
	g.mu.Lock()
	n := min(g.sent.count(b, http2.FrameHeaders), len(g.pending))
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

// LastCheck decides whether a call that takes at most longest may still begin. It must not
// block.
type LastCheck func(longest time.Duration) error

type lastCheckKey struct{}

// WithLastCheck returns a context whose call is checked right before its first byte is sent.
// gRPC sends a deadline as the remaining time. If the process is stopped after gRPC has
// computed that time, the driver gets the call later with the same time. If the check fails,
// nothing is sent and the connection ends: gRPC cannot take a single call back.
func WithLastCheck(ctx context.Context, check LastCheck) context.Context {
	return context.WithValue(ctx, lastCheckKey{}, check)
}

// frameScanner finds the frames that a client of HTTP/2 sends, however the bytes are cut, without keeping their payload.
type frameScanner struct {
	skip   int    // bytes to come before the next header
	header []byte // of the next frame, as far as it has been sent
}

func newFrameScanner() frameScanner { return frameScanner{skip: len(http2.ClientPreface)} }

// count returns how many frames of a type begin in the next bytes, and takes these in.
func (s *frameScanner) count(b []byte, kind http2.FrameType) (count int) {
	const headerLength = 9 // RFC 9113, section 4.1
	for len(b) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(b))
			s.skip, b = s.skip-n, b[n:]
			continue
		}
		n := min(headerLength-len(s.header), len(b))
		s.header, b = append(s.header, b[:n]...), b[n:]
		if len(s.header) < headerLength {
			break
		}
		frame, _ := http2.ReadFrameHeader(bytes.NewReader(s.header)) // which has all that it reads
		s.header, s.skip = s.header[:0], int(frame.Length)
		if frame.Type == kind {
			count++
		}
	}
	return count
}
