package crash

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// tape is what one process does for one driver: its writes and calls in their order. At its Point it keeps a
// request or an answer back until the process is killed. All methods may be called from any goroutine.
type tape struct {
	point *Point // nil: the process is not killed here

	mu          sync.Mutex // guards all below
	recording   bool
	open        chan struct{} // closed while requests may pass
	calls       chan struct{} // closed while calls may pass
	latched     int           // calls that wait for calls
	shut        bool          // the process has no effect any more
	counts      map[string]int
	steps       []string
	leads       bool
	unsaved     map[call]bool // calls that succeeded and whose success no write has recorded yet
	attachments map[string]attachment
	reached     chan struct{} // closed at the point
}

// call is a publish or an unpublish of a volume at a node ID.
type call struct{ method, volume, node string }

// attachment is what a VolumeAttachment may have published.
type attachment struct {
	volume string
	nodes  []string // node IDs
}

func newTape(point *Point) *tape {
	return &tape{point: point, open: closed(), calls: closed(), counts: map[string]int{}, unsaved: map[call]bool{},
		attachments: map[string]attachment{}, reached: make(chan struct{})}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// stop lets requests wait from now on, and record counts them.
func (t *tape) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open, t.recording = make(chan struct{}), true
}

// latch lets calls wait from now on.
func (t *tape) latch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls, t.latched = make(chan struct{}), 0 // those of the setup did not wait
}

// release ends stop. unlatch ends latch.
func (t *tape) release() { t.mu.Lock(); defer t.mu.Unlock(); reopen(t.open) }
func (t *tape) unlatch() { t.mu.Lock(); defer t.mu.Unlock(); reopen(t.calls) }

func reopen(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// waitOpen blocks until a request may pass.
func (t *tape) waitOpen(ctx context.Context, isCall bool) error {
	t.mu.Lock()
	open, calls := t.open, t.calls
	t.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !isCall {
		return nil
	}
	t.mu.Lock()
	t.latched++
	t.mu.Unlock()
	select {
	case <-calls:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pass lets one request take effect, if the point allows it, and then its answer. It blocks until ctx ends where the
// process is to be killed.
func (t *tape) pass(ctx context.Context, name string, isCall bool, effect, answer func()) error {
	if err := t.waitOpen(ctx, isCall); err != nil {
		return err
	}
	phase, hit, shut := t.begin(name)
	if shut || hit && phase == Before {
		<-ctx.Done()
		return ctx.Err()
	}
	effect()
	if hit && phase == After {
		t.close()
	}
	if hit && phase == Effected {
		t.reach()
		<-ctx.Done()
		return ctx.Err()
	}
	answer()
	if hit {
		t.reach()
	}
	return nil
}

// begin records a request and says whether it is the one of the point.
func (t *tape) begin(name string) (phase Phase, hit, shut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut {
		return 0, false, true
	}
	if !t.recording {
		return 0, false, false
	}
	t.counts[name]++
	step := fmt.Sprintf("%s #%d", name, t.counts[name])
	t.steps = append(t.steps, step)
	if t.point == nil || t.point.Step != step {
		return 0, false, false
	}
	if t.point.Phase == Before {
		close(t.reached)
	}
	return t.point.Phase, true, false
}

func (t *tape) close() { t.mu.Lock(); defer t.mu.Unlock(); t.shut = true }
func (t *tape) reach() { t.mu.Lock(); defer t.mu.Unlock(); close(t.reached) }

// recorded returns the steps so far.
func (t *tape) recorded() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.steps)
}

// isReached reports whether the point is reached.
func (t *tape) isReached() bool {
	select {
	case <-t.reached:
		return true
	default:
		return false
	}
}

// has reports whether a step was recorded.
func (t *tape) has(step string) bool { return slices.Contains(t.recorded(), step) }

// succeeded notes a call that succeeded: it may be repeated until a write has recorded its success.
func (t *tape) succeeded(c call) { t.mu.Lock(); defer t.mu.Unlock(); t.unsaved[c] = true }

// saved notes that a write to a VolumeAttachment took effect, which records the calls of the method.
func (t *tape) saved(attachment, method string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.attachments[attachment]
	for _, node := range c.nodes {
		delete(t.unsaved, call{method, c.volume, node})
	}
}

// repeatable reports whether the success of a call was recorded nowhere when the process was killed.
func (t *tape) repeatable(c call) bool { t.mu.Lock(); defer t.mu.Unlock(); return t.unsaved[c] }

// took notes who holds the driver's lease, and reports whether that changes.
func (t *tape) took(leads bool) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed, t.leads = t.leads != leads, leads
	return changed
}

func (t *tape) isLeading() bool   { t.mu.Lock(); defer t.mu.Unlock(); return t.leads }
func (t *tape) callsWaiting() int { t.mu.Lock(); defer t.mu.Unlock(); return t.latched }
