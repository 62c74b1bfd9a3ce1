package fakecsi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// request is what the books and the knobs look at in a call.
type request struct {
	method     Method
	needs      Capability // of the driver; empty: none
	volume     string
	node       string
	readonly   bool
	accessMode string
	multiNode  bool // the access mode is a multi-node one, see Books.MaxInFlightPerVolume
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
	volumes   map[string][]*call // publishes and unpublishes in flight
	volumeMax map[string]int     // most calls in flight of a volume that ever had more than one
	multiNode map[string]bool    // by volume: whether its last publish had a multi-node mode
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
	n, onNode := len(calls), 0
	if n > 1 {
		l.volumeMax[c.Volume] = max(l.volumeMax[c.Volume], n)
	}
	single := false
	for _, other := range calls {
		single = single || other.modeKnown && !other.multiNode
		if other.Node == c.Node {
			onNode++
		}
	}
	l.books.MaxInFlightPerVolumeNode = max(l.books.MaxInFlightPerVolumeNode, onNode)
	if single {
		l.books.MaxInFlightPerVolume = max(l.books.MaxInFlightPerVolume, n)
	}
	if single && n > 1 || onNode > 1 {
		l.violate(Violation{
			Kind: ConcurrentCalls, Time: c.Start, Call: c.ID, Volume: c.Volume,
			Detail: fmt.Sprintf("%d calls in flight, %d of them for node %s", n, onNode, c.Node),
		})
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

func (l *bookkeeper) violate(v Violation) {
	l.books.ViolationCount++
	if len(l.books.Violations) < maxViolations {
		l.books.Violations = append(l.books.Violations, v)
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
