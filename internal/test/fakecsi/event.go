package fakecsi

import (
	"time"

	"google.golang.org/grpc/codes"
)

// EventKind is a sort of Event.
type EventKind string

// What a Backend tells Options.Observe.
const (
	CallBegan EventKind = "CallBegan"
	CallEnded EventKind = "CallEnded"
	Attached  EventKind = "Attached"
	Detached  EventKind = "Detached"
	Violated  EventKind = "Violated" // of Books.Violations; it comes before the begin of its call
)

// Event is the begin or the end of a publish or unpublish, a change of what is attached, or a Violation.
type Event struct {
	Kind   EventKind
	Time   time.Time
	Driver string
	Volume string
	Node   string
	Call   uint64 // 0: a knob has changed the storage

	// Only of calls.
	Method   Method
	Shared   bool      // MULTI_NODE, or not known to be SINGLE_NODE
	Peer     int       // the process that has made the connection; 0: not known
	Deadline time.Time // zero: none
	Code     codes.Code

	Foreign bool // of Attached: by Knobs.GainAttachments

	Violation Violation // of Violated
}

// tellViolation reports a violation. Called with mu held.
func (b *Backend) tellViolation(v Violation) {
	if b.observe != nil {
		b.observe(Event{Kind: Violated, Time: v.Time, Driver: b.behaviour.name, Volume: v.Volume, Call: v.Call, Violation: v})
	}
}

// tell reports the begin or the end of a call. Called with mu held.
func (b *Backend) tell(kind EventKind, c *call) {
	if b.observe == nil || !c.Method.attaches() {
		return
	}
	e := Event{Kind: kind, Time: c.Start, Driver: b.behaviour.name, Volume: c.Volume, Node: c.Node, Call: c.ID,
		Method: c.Method, Shared: c.multiNode || !c.modeKnown, Peer: c.Peer}
	e.Deadline, _ = c.caller.Deadline()
	if kind == CallEnded {
		e.Time, e.Code = c.End, c.Code
	}
	b.observe(e)
}

// record takes note of changes of what is attached, and reports them. Called with mu held.
func (b *Backend) record(changes []Event) {
	for _, e := range changes {
		b.attached = nil
		e.Time, e.Driver = time.Now(), b.behaviour.name
		if b.effecting != nil {
			e.Call = b.effecting.ID
		}
		if b.observe != nil {
			b.observe(e)
		}
	}
}
