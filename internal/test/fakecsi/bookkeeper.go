package fakecsi

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

// request is what the books and the knobs look at in a call.
type request struct {
	method     Method
	needs      Capability // of the driver; empty: none
	volume     string
	node       string
	readonly   bool
	accessMode string
	multiNode  bool // the access mode is a multi-node one, see Violation
	modeKnown  bool // multiNode is certain
	message    proto.Message
}

// call is one call in flight.
type call struct {
	Call
	plan
	multiNode bool
	modeKnown bool
	caller    context.Context // ended: the caller has left
	broken    []safety.Rule
}

// bookkeeper keeps the books. It has no lock of its own.
type bookkeeper struct {
	countersOnly bool
	lastID       uint64
	// books has the counters and lists. The lists are only appended to, so that snapshots can
	// share them. snapshot fills in the rest.
	books     Books
	running   map[uint64]*call
	methods   map[Method]*MethodBook
	volumes   map[string][]*call            // publishes and unpublishes in flight
	volumeMax map[string]int                // most calls in flight of a volume that ever had more than one
	multiNode map[string]bool               // by volume: whether its last publish had a multi-node mode
	refusals  map[VolumeNode]safety.Refusal // of what the driver refuses to detach
	violated  func(Violation)               // is told of each; may be nil
	requests  map[requestKey]proto.Message
}

type requestKey struct {
	method Method
	volume string
}

func newBookkeeper(countersOnly bool) *bookkeeper {
	l := &bookkeeper{
		countersOnly: countersOnly,
		running:      map[uint64]*call{},
		methods:      map[Method]*MethodBook{},
		volumes:      map[string][]*call{},
		volumeMax:    map[string]int{},
		multiNode:    map[string]bool{},
		refusals:     map[VolumeNode]safety.Refusal{},
		requests:     map[requestKey]proto.Message{},
	}
	for _, m := range methods {
		l.methods[m] = &MethodBook{Codes: map[string]int{}}
	}
	return l
}

// begin books a new call.
func (l *bookkeeper) begin(ctx context.Context, r request, now time.Time) *call {
	l.lastID++
	c := &call{caller: ctx, multiNode: r.multiNode, modeKnown: r.modeKnown, Call: Call{
		ID: l.lastID, Peer: connectedProcess(ctx), Method: r.method, Volume: r.volume, Node: r.node,
		Readonly: r.readonly, AccessMode: r.accessMode, Start: now,
	}}
	l.running[c.ID] = c
	m := l.methods[r.method]
	m.Begun++
	m.InFlight.begin()
	l.books.InFlight.begin()
	if !l.countersOnly {
		l.requests[requestKey{r.method, r.volume}] = r.message
	}
	if r.method.attaches() {
		l.books.AttachInFlight.begin()
		l.beginVolume(c)
	}
	return c
}

// beginVolume counts the calls of a volume whose callers have not left. A call whose
// caller has left may still run here for a moment, while the caller rightly sends
// the next one.
func (l *bookkeeper) beginVolume(c *call) {
	if c.Volume == "" {
		return
	}
	if c.Method == ControllerPublishVolume {
		l.multiNode[c.Volume] = c.multiNode
	}
	l.volumes[c.Volume] = append(l.volumes[c.Volume], c)
	calls := present(l.volumes[c.Volume])
	if n := len(calls); n > 1 {
		l.volumeMax[c.Volume] = max(l.volumeMax[c.Volume], n)
	}
	var others []safety.Call
	for _, other := range calls {
		if other != c {
			others = append(others, other.safety())
		}
	}
	l.judge(c, safety.One(c.safety(), others))
}

// safety returns the call as the rules look at it.
func (c *call) safety() safety.Call {
	shared := safety.Surely(c.multiNode)
	if !c.modeKnown {
		shared = safety.Perhaps
	}
	return safety.Call{Method: safety.Method(c.Method), Place: safety.Place{Volume: c.Volume, Node: c.Node}, Shared: shared}
}

// judgeElsewhere judges a publish of a volume that is attached to other nodes too, by calls.
func (l *bookkeeper) judgeElsewhere(c *call, others []string) {
	var places []safety.Place
	for _, n := range others {
		places = append(places, safety.Place{Volume: c.Volume, Node: n})
	}
	l.judge(c, safety.Elsewhere(c.safety(), places, l.refused), append([]string{c.Node}, others...)...)
}

// refused reports whether the driver has refused to detach a volume. A caller that has left counts: its call may still run here
// for a moment.
func (l *bookkeeper) refused(p safety.Place) bool {
	r := l.refusals[VolumeNode{p.Volume, p.Node}]
	for _, c := range l.volumes[p.Volume] {
		if c.caller.Err() != nil && c.Node == p.Node {
			r = r.After(safety.Method(c.Method), c.told())
		}
	}
	return r.Refused()
}

// told returns the code that the caller has got.
func (c *call) told() codes.Code {
	if err := c.caller.Err(); err != nil {
		return status.FromContextError(err).Code()
	}
	return c.Code
}

// judge books the rule that a call breaks. Each call breaks each rule once.
func (l *bookkeeper) judge(c *call, err error, nodes ...string) {
	var b *safety.Broken
	if !errors.As(err, &b) || slices.Contains(c.broken, b.Rule) {
		return
	}
	c.broken = append(c.broken, b.Rule)
	v := Violation{Rule: b.Rule, Time: time.Now(), Call: c.ID, Volume: c.Volume, Nodes: nodes, Detail: b.Text}
	l.books.ViolationCount++
	if len(l.books.Violations) < maxViolations {
		l.books.Violations = append(l.books.Violations, v)
	}
	if l.violated != nil {
		l.violated(v)
	}
}

// present returns the calls whose callers have not left.
func present(cs []*call) []*call {
	var there []*call
	for _, c := range cs {
		if c.caller.Err() == nil {
			there = append(there, c)
		}
	}
	return there
}

// end books the end of a call.
func (l *bookkeeper) end(c *call, changed bool, err error, now time.Time) {
	c.End, c.Changed, c.Code = now, changed, status.Code(err)
	if err != nil {
		c.Error = err.Error()
	}
	c.Abandoned = c.caller.Err() != nil
	delete(l.running, c.ID)
	m := l.methods[c.Method]
	m.Ended++
	m.InFlight.end()
	m.Codes[c.Code.String()]++
	switch {
	case changed:
		m.Changed++
	case err == nil:
		m.Unchanged++
	}
	l.books.InFlight.end()
	if c.Method.attaches() {
		l.books.AttachInFlight.end()
		at := VolumeNode{c.Volume, c.Node}
		if l.refusals[at] = l.refusals[at].After(safety.Method(c.Method), c.told()); l.refusals[at] == (safety.Refusal{}) {
			delete(l.refusals, at)
		}
	}
	if rest := slices.DeleteFunc(l.volumes[c.Volume], func(o *call) bool { return o == c }); len(rest) > 0 {
		l.volumes[c.Volume] = rest
	} else {
		delete(l.volumes, c.Volume)
	}
	if !l.countersOnly {
		l.books.Calls = append(l.books.Calls, c.Call)
	}
}

// snapshot returns the books, without what only the storage and the knobs know.
func (l *bookkeeper) snapshot() Books {
	b := l.books
	b.Calls, b.Violations = slices.Clip(b.Calls), slices.Clip(b.Violations)
	for _, c := range l.running {
		b.Running = append(b.Running, c.Call)
	}
	slices.SortFunc(b.Running, func(x, y Call) int { return cmp.Compare(x.ID, y.ID) })
	b.Methods = make(map[Method]MethodBook, len(l.methods))
	for name, m := range l.methods {
		book := *m
		book.Codes = maps.Clone(m.Codes)
		b.Methods[name] = book
	}
	b.VolumesInFlight = make(map[string]Flight, len(l.volumes)+len(l.volumeMax))
	for v, n := range l.volumeMax {
		b.VolumesInFlight[v] = Flight{Max: n}
	}
	for v, cs := range l.volumes {
		b.VolumesInFlight[v] = Flight{Now: len(present(cs)), Max: max(1, l.volumeMax[v])}
	}
	return b
}
