package csiclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// LastCheck decides whether a call that takes at most longest may still begin. It must not
// block.
type LastCheck func(longest time.Duration) error

type lastCheckKey struct{}

// WithLastCheck has a call checked right before its first byte is sent. A deadline is sent
// as what is left of it: if the process is stopped between that reckoning and the
// sending, the driver gets, when the process goes on, a call with all the time that it
// had before. If the check fails, nothing is sent and the connection ends: gRPC cannot
// take a single call back.
func WithLastCheck(ctx context.Context, check LastCheck) context.Context {
	return context.WithValue(ctx, lastCheckKey{}, check)
}

// departures are the calls of one connection of which nothing has been sent: those that
// have begun, and those that have ended while what begins them waits to be sent, as it
// will be, with no regard to their end. The zero value is that of a new connection.
type departures struct {
	mu      sync.Mutex
	waiting []*departure // in the order in which they began; guarded by mu
	sent    frames       // guarded by mu
}

type departure struct {
	check   LastCheck // nil: there is none
	longest time.Duration
	queued  bool // what begins the call waits to be sent, or has been sent; guarded by departures.mu
}

type departureKey struct{}

// TagRPC implements stats.Handler.
func (d *departures) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler. gRPC tells of OutHeader when it has put the frame that
// begins a call into its queue, before the call can end.
func (d *departures) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutHeader); !ok {
		return
	}
	if call, ok := ctx.Value(departureKey{}).(*departure); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		call.queued = true
	}
}

// TagConn implements stats.Handler.
func (d *departures) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (d *departures) HandleConn(context.Context, stats.ConnStats) {}

// call is a grpc.UnaryClientInterceptor.
func (d *departures) call(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := &departure{}
	call.check, _ = ctx.Value(lastCheckKey{}).(LastCheck)
	if deadline, ok := ctx.Deadline(); ok {
		call.longest = time.Until(deadline)
	}
	d.mu.Lock()
	d.waiting = append(d.waiting, call)
	d.mu.Unlock()
	defer d.forget(call)
	return invoke(context.WithValue(ctx, departureKey{}, call), method, req, reply, cc, opts...)
}

// forget drops a call that has ended, if nothing of it has been sent or will be.
func (d *departures) forget(call *departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if call.queued {
		return
	}
	for i, c := range d.waiting {
		if c == call {
			d.waiting = append(d.waiting[:i:i], d.waiting[i+1:]...)
			return
		}
	}
}

// check says whether bytes may be sent that begin calls, if they do. Calls may
// overtake one another on the way to the wire by a moment, which makes no difference.
func (d *departures) check(b []byte) error {
	d.mu.Lock()
	n := min(d.sent.count(b, typeHeaders), len(d.waiting))
	leaving := d.waiting[:n:n]
	d.waiting = d.waiting[n:]
	d.mu.Unlock()
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

// What frames needs to know of HTTP/2 (RFC 9113).
const (
	prefaceLength     = 24 // of what a client sends first
	frameHeaderLength = 9
	frameTypeAt       = 3
	typeHeaders       = 1 // the type of a frame that begins a call
	typeGoAway        = 7 // the type of a frame that says that no further call is taken
)

// frames follows the HTTP/2 frames that one side sends. The zero value is that of a
// client; a server sends no preface: its frames have begun.
type frames struct {
	begun  bool
	skip   int    // bytes of the frame that are still to come
	header []byte // of the next frame, as far as it has been seen
}

// count returns how many frames of a type begin in the next bytes.
func (f *frames) count(b []byte, kind byte) (n int) {
	if !f.begun {
		f.begun, f.skip = true, prefaceLength
	}
	for {
		passed := min(f.skip, len(b))
		f.skip -= passed
		b = b[passed:]
		taken := min(frameHeaderLength-len(f.header), len(b))
		f.header = append(f.header, b[:taken]...)
		b = b[taken:]
		if len(f.header) < frameHeaderLength {
			return n
		}
		f.skip = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
		if f.header[frameTypeAt] == kind {
			n++
		}
		f.header = f.header[:0]
	}
}
