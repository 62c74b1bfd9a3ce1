package fakecsi

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/status"
)

// behaviour is the present state of the knobs.
type behaviour struct {
	name            string
	capabilities    []Capability
	latency         map[Method]Latency
	faults          []*fault
	hangs           []*hang
	notReady        bool
	finishAbandoned bool
	maxPerNode      int
	publishContext  map[string]string // nil: a generated devicePath
}

type fault struct {
	Fault
	left int // matching calls that will still fail; with Count 0: all
}

type hang struct {
	Hang
	released chan struct{} // closed on release
}

// plan is what the knobs do to one call. It is fixed when the call begins.
type plan struct {
	latency             time.Duration
	before, after       []<-chan struct{} // hangs
	errBefore, errAfter error
	finishAbandoned     bool
}

func (b *behaviour) has(c Capability) bool { return slices.Contains(b.capabilities, c) }

// plan returns what matches the call, and uses up faults with a count. At most one
// fault hits a call.
func (b *behaviour) plan(r request) plan {
	p := plan{finishAbandoned: b.finishAbandoned}
	l, ok := b.latency[r.method]
	if !ok {
		l = b.latency[""]
	}
	p.latency = l.draw()
	for _, h := range b.hangs {
		switch {
		case !matches(h.Method, h.Volume, h.Node, r):
		case h.AfterEffect:
			p.after = append(p.after, h.released)
		default:
			p.before = append(p.before, h.released)
		}
	}
	for i, f := range b.faults {
		if !matches(f.Method, f.Volume, f.Node, r) {
			continue
		}
		if f.Count > 0 {
			if f.left--; f.left == 0 {
				b.faults = slices.Delete(b.faults, i, i+1)
			}
		}
		msg := f.Message
		if msg == "" {
			msg = fmt.Sprintf("injected fault of %s", r.method)
		}
		if f.AfterEffect {
			p.errAfter = status.Error(f.Code, msg)
		} else {
			p.errBefore = status.Error(f.Code, msg)
		}
		break
	}
	return p
}

func matches(m Method, volume, node string, r request) bool {
	return (m == "" || m == r.method) && (volume == "" || volume == r.volume) && (node == "" || node == r.node)
}

// apply applies all knobs but those that change the storage.
func (b *behaviour) apply(k Knobs) {
	if k.Name != "" {
		b.name = k.Name
	}
	if k.Capabilities != nil {
		b.capabilities = slices.Clone(k.Capabilities)
	}
	maps.Copy(b.latency, k.Latency)
	if k.ClearFaults {
		b.faults = nil
	}
	for _, f := range k.Fail {
		b.faults = append(b.faults, &fault{Fault: f, left: f.Count})
	}
	b.hangs = slices.DeleteFunc(b.hangs, func(h *hang) bool {
		if !k.ReleaseAll && !slices.Contains(k.Release, h.Hang) {
			return false
		}
		close(h.released)
		return true
	})
	for _, h := range k.Hang {
		b.hangs = append(b.hangs, &hang{Hang: h, released: make(chan struct{})})
	}
	set(&b.notReady, k.NotReady)
	set(&b.finishAbandoned, k.FinishAbandoned)
	set(&b.maxPerNode, k.MaxVolumesPerNode)
	if k.PublishContext != nil {
		b.publishContext = maps.Clone(k.PublishContext)
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
