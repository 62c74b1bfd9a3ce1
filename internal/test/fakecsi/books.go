package fakecsi

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

// Books is a snapshot of a Backend: its calls and its storage. Snapshots share maps
// and slices: read them, do not change them.
type Books struct {
	Driver string `json:"driver"`
	// Attached has the attachments by volume and node. It leaves out volumes that
	// are attached nowhere.
	Attached map[string]map[string]Attachment `json:"attached"`

	// Calls are the ended calls in the order of their ends; empty with
	// Options.CountersOnly.
	Calls []Call `json:"calls,omitempty"`
	// Running are the calls in flight in the order of their begins.
	Running []Call `json:"running,omitempty"`

	// Methods has an entry for each method, called or not.
	Methods map[Method]MethodBook `json:"methods"`

	// InFlight counts all calls, AttachInFlight publishes and unpublishes.
	InFlight       Flight `json:"inFlight"`
	AttachInFlight Flight `json:"attachInFlight"`

	// VolumesInFlight has the volumes with publishes and unpublishes in flight now, and those that ever had more than one, in
	// any mode. Every other volume had one at most. A call stops to count when its caller leaves (deadline, cancellation, lost
	// connection).
	VolumesInFlight map[string]Flight `json:"volumesInFlight,omitempty"`

	// Violations are the first thousand, ViolationCount is the number of all.
	Violations     []Violation `json:"violations,omitempty"`
	ViolationCount int         `json:"violationCount"`
}

// Flight counts calls in flight.
type Flight struct {
	Now int `json:"now"`
	Max int `json:"max"` // the most that ever were in flight at once
}

func (f *Flight) begin() {
	f.Now++
	f.Max = max(f.Max, f.Now)
}

func (f *Flight) end() { f.Now-- }

// MethodBook counts the calls of one method.
type MethodBook struct {
	Begun    int    `json:"begun"`
	Ended    int    `json:"ended"`
	InFlight Flight `json:"inFlight"`
	// Changed counts the calls that changed the storage, whatever their code.
	// Unchanged counts the calls that were answered OK and changed nothing: a
	// publish of what was published, an unpublish of what was not.
	Changed   int `json:"changed"`
	Unchanged int `json:"unchanged"`
	// Codes counts the ended calls by the name of their gRPC code.
	Codes map[string]int `json:"codes,omitempty"`
}

// Call is one call.
type Call struct {
	ID         uint64     `json:"id"`             // counts from 1 in the order of the begins
	Peer       int        `json:"peer,omitempty"` // ID of the process that has made the connection; 0: not known
	Method     Method     `json:"method"`
	Volume     string     `json:"volume,omitempty"`
	Node       string     `json:"node,omitempty"`
	Readonly   bool       `json:"readonly,omitempty"`
	AccessMode string     `json:"accessMode,omitempty"`
	Start      time.Time  `json:"start"`
	End        time.Time  `json:"end,omitzero"`
	Code       codes.Code `json:"code"`
	Error      string     `json:"error,omitempty"`
	// Changed reports whether the call changed the storage, whatever its code.
	Changed bool `json:"changed,omitempty"`
	// Abandoned reports whether the caller had left before the answer was ready.
	Abandoned bool `json:"abandoned,omitempty"`
}

// Violation is a call that a correct caller never makes: it breaks safety.OneCall, OneNode or Announced. Of what knobs have
// attached no caller can know, so it breaks nothing.
type Violation struct {
	Rule   safety.Rule `json:"rule"`
	Time   time.Time   `json:"time"`
	Call   uint64      `json:"call"`
	Volume string      `json:"volume,omitempty"`
	Nodes  []string    `json:"nodes,omitempty"` // of OneNode: that of the call, and the others
	Detail string      `json:"detail,omitempty"`
}

const maxViolations = 1000

// Check returns the violations as one error.
func (b Books) Check() error {
	if b.ViolationCount == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d violations, the first ones: %+v", b.Driver, b.ViolationCount, b.Violations[:min(len(b.Violations), 3)])
}

// IsAttached reports whether the volume is attached to the node.
func (b Books) IsAttached(volume, node string) bool {
	_, ok := b.Attached[volume][node]
	return ok
}

// Places returns where volumes are attached, sorted.
func (b Books) Places() []safety.Place {
	var places []safety.Place
	for _, volume := range slices.Sorted(maps.Keys(b.Attached)) {
		for _, node := range slices.Sorted(maps.Keys(b.Attached[volume])) {
			places = append(places, safety.Place{Driver: b.Driver, Volume: volume, Node: node})
		}
	}
	return places
}

// RunningCalls returns the publishes and unpublishes in flight.
func (b Books) RunningCalls() []safety.Call {
	var calls []safety.Call
	for _, c := range b.Running {
		if c.Method.attaches() {
			calls = append(calls, safety.Call{Method: safety.Method(c.Method), Place: safety.Place{Driver: b.Driver, Volume: c.Volume, Node: c.Node}})
		}
	}
	return calls
}

// CallsOf returns the ended calls of a method for a volume, in the order of their
// ends. An empty volume means any.
func (b Books) CallsOf(m Method, volume string) []Call {
	var out []Call
	for _, c := range b.Calls {
		if c.Method == m && (volume == "" || c.Volume == volume) {
			out = append(out, c)
		}
	}
	return out
}
