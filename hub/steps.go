package hub

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/tracing"
)

const (
	// firstSteps and keptSteps bound the steps that are kept of an operation: the first and the latest. A step takes 64
	// bytes and its error, of which equal texts of one operation are shared.
	firstSteps = 4
	keptSteps  = 20
	// maxStepError bounds the error of a step, in bytes: thousands of attaches may fail again and again.
	maxStepError = 256
	// recentOperations is how many attaches of a driver are kept after their end.
	recentOperations = 100
	// shortestWait is the length from which a wait or a read is a step: nearly all take microseconds.
	shortestWait = time.Millisecond
)

// operation has the steps of one attach or detach. It exists from the first run of its entry to the end of the entry:
// what was never tried takes no memory here. All methods take nil, and do nothing.
type operation struct {
	name string
	uid  types.UID
	kind status.Operation
	span *tracing.Span

	mu      sync.Mutex
	kept    []step    // guarded by mu, like all that follows
	omitted omitted   // after the first steps that are kept
	current step      // that has not ended; zero: none
	idle    time.Time // when the last run ended; zero: it runs, or goes on after it was blocked
}

// step is a status.Step in less memory.
type step struct {
	kind       status.StepKind
	what       string
	failure    string
	from, till int64 // in nanoseconds since 1970; till is 0 if it lasts, or has no length
}

// omitted is what is left of the steps that are not kept.
type omitted struct {
	steps, failed int
	from, till    int64
}

// add adds a step that has ended, or has no length. The caller has locked mu, as in omit.
func (o *operation) add(s step) {
	for _, before := range o.kept {
		if before.failure == s.failure {
			s.failure = before.failure // one copy of an error that comes again and again
		}
	}
	if !o.idle.IsZero() {
		o.idle = time.Unix(0, max(s.from, s.till))
	}
	switch len(o.kept) {
	case 0:
		o.kept = make([]step, 0, 8) // what most attaches need
	case keptSteps:
		o.omit(o.kept[firstSteps])
		o.kept = slices.Delete(o.kept, firstSteps, firstSteps+1)
	}
	o.kept = append(o.kept, s)
}

func (o *operation) omit(s step) {
	if o.omitted.steps == 0 {
		o.omitted.from = s.from
	}
	o.omitted.steps++
	o.omitted.till = max(s.from, s.till)
	if s.failure != "" {
		o.omitted.failed++
	}
}

// note adds a step that has ended, and sends it as a span.
func (o *operation) note(kind status.StepKind, what string, from, till time.Time) {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.add(step{kind: kind, what: what, from: from.UnixNano(), till: till.UnixNano()})
	o.mu.Unlock()
	o.span.Child(spanName(kind), what, from, till, "")
}

// at adds a step without length, which is no span.
func (o *operation) at(kind status.StepKind, what string, when time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(step{kind: kind, what: what, from: when.UnixNano()})
}

// waited adds a wait, unless it is very short.
func (o *operation) waited(what string, from, till time.Time) {
	if till.Sub(from) >= shortestWait {
		o.note(status.StepWaited, what, from, till)
	}
}

// spanName returns the name of the span of a step. The names of spans are few; what names objects is an attribute.
func spanName(kind status.StepKind) string {
	switch kind {
	case status.StepWaited:
		return "wait"
	case status.StepRead:
		return "read"
	}
	return "write"
}

// starts begins a step that lasts until ended is called.
func (o *operation) starts(kind status.StepKind, what string, now time.Time) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current = step{kind: kind, what: what, from: now.UnixNano()}
}

// ended ends the current step. failure is its error, redacted and bounded. A read that is very short and has succeeded
// is no step. It returns the step, and whether it was kept.
func (o *operation) ended(failure string, now time.Time) (step, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.current
	o.current = step{}
	s.failure, s.till = failure, now.UnixNano()
	if s.kind == status.StepRead && failure == "" && s.till-s.from < int64(shortestWait) {
		return s, false
	}
	o.add(s)
	return s, true
}

// do makes a read or a write of the operation, as a step.
func (o *operation) do(kind status.StepKind, what string, f func() error) error {
	if o == nil {
		return f()
	}
	o.starts(kind, what, time.Now())
	err := f()
	failure := ""
	if err != nil {
		failure = stepError(err)
	}
	if s, kept := o.ended(failure, time.Now()); kept {
		o.span.Child(spanName(kind), what, time.Unix(0, s.from), time.Unix(0, s.till), failure)
	}
	return err
}

// stepError returns the text of an error that is redacted.
func stepError(err error) string { return csiclient.Truncate(attach.Message(err), maxStepError) }

// steps returns the steps so far, in order.
func (o *operation) steps() []status.Step {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]status.Step, 0, len(o.kept)+2)
	for i, s := range o.kept {
		if n := o.omitted; i == firstSteps && n.steps > 0 {
			all = append(all, step{kind: status.StepOmitted, what: fmt.Sprintf("%d steps, of which %d failed", n.steps, n.failed), from: n.from, till: n.till}.shown())
		}
		all = append(all, s.shown())
	}
	if o.current != (step{}) {
		all = append(all, o.current.shown())
	}
	return all
}

// idleSince returns when the last run ended, zero if a worker has the operation.
func (o *operation) idleSince() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.idle
}

func (s step) shown() status.Step {
	shown := status.Step{Kind: s.kind, What: s.what, Time: time.Unix(0, s.from), Error: s.failure}
	if s.till != 0 {
		shown.Until = time.Unix(0, s.till)
	}
	return shown
}

// recent has the last attaches of a driver that have succeeded.
type recent struct {
	mu   sync.Mutex
	ring []*operation // guarded by mu
	next int          // the oldest, once the ring is full; guarded by mu
}

func (r *recent) add(o *operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < recentOperations {
		r.ring = append(r.ring, o)
		return
	}
	r.ring[r.next] = o
	r.next = (r.next + 1) % recentOperations
}

// of returns the last attach of a VolumeAttachment, nil if it is not among those that are kept.
func (r *recent) of(name string, uid types.UID) *operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.ring {
		// The newest first.
		if o := r.ring[(r.next+len(r.ring)-1-i)%len(r.ring)]; o.name == name && o.uid == uid {
			return o
		}
	}
	return nil
}

type operationKey struct{}

// operationIn returns the operation that a context is for, nil for none.
func operationIn(ctx context.Context) *operation {
	o, _ := ctx.Value(operationKey{}).(*operation)
	return o
}
