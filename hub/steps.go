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
)

const (
	// firstSteps and keptSteps bound the steps that are kept of an operation: the first and the latest. A step takes 40
	// bytes.
	firstSteps = 4
	keptSteps  = 20
	// maxStepError bounds the error of a step, in bytes.
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

	memory       *stepMemory
	kept         []step    // guarded by memory.mu, like all that follows
	texts        [3]string // of the errors of steps that are kept
	omitted      omitted   // after the first steps that are kept
	forgotten    bool      // before the steps that are kept
	current      step      // that has not ended; zero: none
	idle         time.Time // when the last run ended; zero: it runs, or goes on after it was blocked
	size         int       // counted in the memory
	older, newer *operation
}

// step is a status.Step in less memory.
type step struct {
	what       string
	from, till int64 // in nanoseconds since 1970; till is 0 if it lasts, or has no length
	kind       stepKind
	failure    textIndex
}

// stepKind is a status.StepKind in less memory.
type stepKind uint8

var stepKinds = [...]status.StepKind{status.StepWaited, status.StepCreated, status.StepSeen, status.StepRead, status.StepWrote, status.StepCalled, status.StepDone}

// waited is the index of StepWaited.
const waited stepKind = 0

func kindOf(kind status.StepKind) stepKind { return stepKind(slices.Index(stepKinds[:], kind)) }

// omitted is what is left of the steps that are not kept.
type omitted struct {
	steps, failed int
	from, till    int64
}

// add adds a step that has ended, or has no length, with the text of its error. The caller has locked memory.mu, as in omit.
func (o *operation) add(s step, failure string) {
	s.failure = o.textOf(failure)
	if !o.idle.IsZero() {
		o.idle = time.Unix(0, max(s.from, s.till))
	}
	switch first := o.first(); len(o.kept) {
	case 0:
		o.kept = make([]step, 0, 8) // what most attaches need
	case keptSteps:
		o.omit(o.kept[first])
		o.kept = slices.Delete(o.kept, first, first+1)
	case cap(o.kept):
		o.kept = slices.Grow(o.kept, keptSteps-len(o.kept))
	}
	o.kept = append(o.kept, s)
	o.memory.used(o)
}

// first returns how many of the steps that are kept are before those that are omitted.
func (o *operation) first() int {
	if o.forgotten {
		return 0
	}
	return firstSteps
}

func (o *operation) omit(s step) {
	if o.omitted.steps == 0 {
		o.omitted.from = s.from
	}
	o.omitted.from = min(o.omitted.from, s.from)
	o.omitted.steps++
	o.omitted.till = max(o.omitted.till, s.from, s.till)
	if s.failure != 0 {
		o.omitted.failed++
	}
}

// note adds a step that has ended.
func (o *operation) note(kind status.StepKind, what string, from, till time.Time) {
	if o == nil {
		return
	}
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	o.add(step{kind: kindOf(kind), what: what, from: from.UnixNano(), till: till.UnixNano()}, "")
}

// at adds a step without length.
func (o *operation) at(kind status.StepKind, what string, when time.Time) {
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	o.add(step{kind: kindOf(kind), what: what, from: when.UnixNano()}, "")
}

// waited adds a wait, unless it is very short.
func (o *operation) waited(what string, from, till time.Time) {
	if till.Sub(from) >= shortestWait {
		o.note(status.StepWaited, what, from, till)
	}
}

// starts begins a step that lasts until ended is called.
func (o *operation) starts(kind status.StepKind, what string, now time.Time) {
	if o == nil {
		return
	}
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	o.current = step{kind: kindOf(kind), what: what, from: now.UnixNano()}
}

// ended ends the current step. failure is its error, redacted and bounded. A read that is very short and has succeeded
// is no step.
func (o *operation) ended(failure string, now time.Time) {
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	s := o.current
	o.current = step{}
	s.till = now.UnixNano()
	if stepKinds[s.kind] == status.StepRead && failure == "" && s.till-s.from < int64(shortestWait) {
		return
	}
	o.add(s, failure)
}

// do makes a read or a write of the operation, as a step.
func (o *operation) do(kind status.StepKind, what string, f func() error) error {
	o.starts(kind, what, time.Now())
	err := f()
	o.done(err)
	return err
}

// done ends the current step, a read or a write.
func (o *operation) done(err error) {
	if o == nil {
		return
	}
	failure := ""
	if err != nil {
		failure = stepError(err)
	}
	o.ended(failure, time.Now())
}

// stepError returns the text of an error that is redacted.
func stepError(err error) string { return csiclient.Truncate(attach.Message(err), maxStepError) }

// steps returns the steps so far, in order.
func (o *operation) steps() []status.Step {
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	all := make([]status.Step, 0, len(o.kept)+2)
	for _, s := range o.kept {
		all = append(all, o.shown(s))
	}
	if n := o.omitted; n.steps > 0 {
		all = slices.Insert(all, o.first(), status.Step{Kind: status.StepOmitted, What: fmt.Sprintf("%d steps, of which %d failed", n.steps, n.failed),
			Time: time.Unix(0, n.from), Until: time.Unix(0, n.till)})
	}
	if o.current != (step{}) {
		all = append(all, o.shown(o.current))
	}
	return all
}

// idleSince returns when the last run ended, zero if a worker has the operation.
func (o *operation) idleSince() time.Time {
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	return o.idle
}

func (o *operation) shown(s step) status.Step {
	shown := status.Step{Kind: stepKinds[s.kind], What: s.what, Time: time.Unix(0, s.from)}
	if s.till != 0 {
		shown.Until = time.Unix(0, s.till)
	}
	switch s.failure {
	case 0:
	case textGone:
		shown.Error = goneText
	default:
		shown.Error = o.texts[s.failure-1]
	}
	return shown
}

// recent has the last attaches of a driver that have succeeded.
type recent struct {
	mu   sync.Mutex
	ring []*operation // guarded by mu
	next int          // the oldest, once the ring is full; guarded by mu
}

// add returns the operation that makes place, nil for none.
func (r *recent) add(o *operation) (before *operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < recentOperations {
		r.ring = append(r.ring, o)
		return nil
	}
	before, r.ring[r.next] = r.ring[r.next], o
	r.next = (r.next + 1) % recentOperations
	return before
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
