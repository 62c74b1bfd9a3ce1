package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// stretchFaults is how many faults there are between two quiets, in runs that are not short.
	stretchFaults = 100
	// pace is the average time from the begin of one fault to the begin of the next.
	pace = 90 * time.Millisecond
	// takeoverPace is the pace of stretches with takeovers, which need time.
	takeoverPace = 240 * time.Millisecond
	// planeOutages: the API server stops in one of so many stretches. Everything waits for it.
	planeOutages = 4
	// podRest is the time from the end of a fault to the next one of the same scope and target.
	podRest = 500 * time.Millisecond
)

// Fault is one fault of a plan.
type Fault struct {
	Kind   Kind
	At     time.Duration // after the begin of its stretch
	Length time.Duration // 0: it is over at once
	Target int           // which driver, hub, pod, node, volume or secret, by its kind
	Draw   uint64        // seeds the further choices of the fault
}

// random returns the source of the further choices of a fault.
func (f Fault) random() *rand.Rand { return rand.New(rand.NewPCG(f.Draw, uint64(f.At))) }

func (f Fault) String() string {
	if f.Length == 0 {
		return fmt.Sprintf("%s %d", f.Kind, f.Target)
	}
	return fmt.Sprintf("%s %d for %v", f.Kind, f.Target, f.Length.Round(time.Millisecond))
}

// Stretch is the faults between two quiets.
type Stretch struct {
	Number int
	Hubs   int  // processes while nothing is wrong: one or two
	Hasty  bool // VolumeAttachments may go without their finalizer; there is one hub, and it does not end
	Faults []Fault
}

// planner makes the plan of a run. The plan depends on these fields alone.
type planner struct {
	seed   uint64
	faults int
	sizes  map[scope]int // how many targets there are
}

// stretches returns how many stretches the planned faults make.
func (p planner) stretches() int { return max(2, (p.faults+stretchFaults-1)/stretchFaults) }

// stretch plans one stretch. It depends on no other stretch.
func (p planner) stretch(number int) Stretch {
	random := rand.New(rand.NewPCG(p.seed, uint64(number)))
	s := Stretch{Number: number, Hubs: 1, Hasty: number%2 == 1}
	pace := pace
	if !s.Hasty && number%8 != 4 {
		s.Hubs = 2
		pace = takeoverPace
	}
	b := booking{planner: p, stretch: &s, random: random, until: map[slot]time.Duration{}}
	if random.IntN(planeOutages) == 0 {
		f := Fault{Kind: APIStop, At: -1}
		for f.At < 0 || b.inTakeover(onPlane, f) {
			f.At, f.Length = time.Duration(random.Int64N(int64(pace)*stretchFaults)), time.Duration(random.Int64N(int64(5*time.Second)))
		}
		b.add(f)
	}
	b.addTakeovers()
	for at := time.Duration(0); len(s.Faults) < stretchFaults; at += time.Duration(random.ExpFloat64() * float64(pace)) {
		for !b.try(at) {
		}
	}
	slices.SortStableFunc(s.Faults, func(x, y Fault) int { return int(x.At - y.At) })
	return s
}

// takeover is a takeover at a time of a stretch.
type takeover struct {
	at   time.Duration
	kind Kind
}

// takeovers are those of a stretch, by its number of hubs. The time between them is for other faults of hubs.
var takeovers = map[int][]takeover{
	1: {{time.Second, TakeoverPaused}},
	2: {{2 * time.Second, TakeoverStale}, {8 * time.Second, TakeoverPaused}, {18 * time.Second, TakeoverStale}},
}

// takeovers returns those of the stretch. A stretch in which one hub may end has none: it has takeovers by the second
// process of HubDoubled.
func (b *booking) takeovers() []takeover {
	if b.stretch.Hubs == 1 && !b.stretch.Hasty {
		return nil
	}
	return takeovers[b.stretch.Hubs]
}

func (b *booking) addTakeovers() {
	for _, t := range b.takeovers() {
		b.add(Fault{Kind: t.kind, At: t.at})
	}
}

// inTakeover reports whether a fault would disturb a takeover: it hits a hub or, where there are two of them, a way to
// the API server.
func (b *booking) inTakeover(s scope, f Fault) bool {
	if s != onProcess && (b.stretch.Hubs == 1 || s != onAPI && s != onSilence && s != onPlane) {
		return false
	}
	return slices.ContainsFunc(b.takeovers(), func(t takeover) bool {
		return f.At < t.at+takeoverTime && f.At+f.Length+podRest > t.at
	})
}

// survives reports whether a hub must live through a stretch. The first hub lives through the second
// half of the run, so that its growth shows.
func (p planner) survives(number, hub int) bool { return hub == 0 && number >= max(2, p.stretches()/2) }

// slot is one scope of one target.
type slot struct {
	scope  scope
	target int
}

// booking is a stretch in the making.
type booking struct {
	planner
	stretch *Stretch
	random  *rand.Rand
	until   map[slot]time.Duration // when a slot is free again
}

func (b *booking) add(f Fault) {
	f.Draw = b.random.Uint64()
	b.stretch.Faults = append(b.stretch.Faults, f)
}

// try draws a fault and adds it at that time. It reports whether the fault is possible.
func (b *booking) try(at time.Duration) bool {
	h := b.draw()
	c := slot{h.scope, b.random.IntN(b.size(h))}
	if !b.possible(h, c.target) || !h.scope.shared() && at < b.until[c] {
		return false
	}
	f := Fault{Kind: h.kind, At: at, Target: c.target}
	if h.most > 0 {
		f.Length = h.least + time.Duration(b.random.Int64N(int64(h.most-h.least)))
	}
	if b.inTakeover(h.scope, f) {
		return false
	}
	b.until[c] = at + f.Length + podRest
	b.add(f)
	return true
}

func (b *booking) draw() schedule {
	sum := 0
	for _, h := range schedules {
		sum += h.weight
	}
	n := b.random.IntN(sum)
	for _, h := range schedules {
		if n -= h.weight; n < 0 {
			return h
		}
	}
	panic("weights do not add up")
}

// size returns how many targets a fault can choose from.
func (b *booking) size(h schedule) int {
	if h.kind == HubDoubled {
		return 2
	}
	return max(1, b.sizes[h.scope])
}

func (b *booking) possible(h schedule, target int) bool {
	ends := h.kind == HubKill || h.kind == HubStop
	switch {
	case h.when == hasty && !b.stretch.Hasty, h.when == hubsMayEnd && b.stretch.Hasty:
		return false
	case h.kind == HubDoubled: // a process beyond the regular ones
		return target >= b.stretch.Hubs
	case ends && b.survives(b.stretch.Number, target):
		return false
	case h.scope == onProcess:
		return target < b.stretch.Hubs
	}
	return true
}
