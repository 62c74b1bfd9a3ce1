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
	// pace is the average time from the begin of one fault to the begin of the next. Stretches with takeovers need more.
	pace, takeoverPace = 90 * time.Millisecond, 240 * time.Millisecond
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

// survives reports whether a hub must live through a stretch. The first hub lives through the second
// half of the run, so that its growth shows.
func (p planner) survives(number, hub int) bool { return hub == 0 && number >= max(2, p.stretches()/2) }

// slot is one scope of one target.
type slot struct {
	scope  scope
	target int
}

// stretch plans one stretch. It depends on no other stretch.
func (p planner) stretch(number int) Stretch {
	random := rand.New(rand.NewPCG(p.seed, uint64(number)))
	s, pace := Stretch{Number: number, Hubs: 1, Hasty: number%2 == 1}, pace
	if !s.Hasty && number%8 != 4 {
		s.Hubs, pace = 2, takeoverPace
	}
	add := func(f Fault) {
		f.Draw = random.Uint64()
		s.Faults = append(s.Faults, f)
	}
	if random.IntN(planeOutages) == 0 {
		f := Fault{Kind: APIStop, At: -1}
		for f.At < 0 || s.inTakeover(onPlane, f) {
			f.At, f.Length = time.Duration(random.Int64N(int64(pace)*stretchFaults)), time.Duration(random.Int64N(int64(5*time.Second)))
		}
		add(f)
	}
	for _, f := range s.takeovers() {
		add(f)
	}
	until := map[slot]time.Duration{} // when a slot is free again
	for at := time.Duration(0); len(s.Faults) < stretchFaults; {
		k := drawKind(random)
		size := max(1, p.sizes[k.scope])
		f := Fault{Kind: k.Kind, At: at, Target: random.IntN(size)}
		if k.most > 0 {
			f.Length = k.least + time.Duration(random.Int64N(int64(k.most-k.least)))
		}
		place := slot{k.scope, f.Target}
		if !p.possible(s, k, f.Target) || !k.scope.shared() && at < until[place] || s.inTakeover(k.scope, f) {
			continue
		}
		until[place] = at + f.Length + podRest
		add(f)
		at += time.Duration(random.ExpFloat64() * float64(pace))
	}
	slices.SortStableFunc(s.Faults, func(x, y Fault) int { return int(x.At - y.At) })
	return s
}

// drawKind draws a kind by its weight.
func drawKind(random *rand.Rand) kind {
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	n := random.IntN(sum)
	i := slices.IndexFunc(kinds, func(k kind) bool { n -= k.weight; return n < 0 })
	return kinds[i]
}

// takeovers are those of a stretch. The time between them is for other faults of hubs. A stretch in which one hub may end has
// none: it has takeovers by the second process of HubDoubled.
func (s Stretch) takeovers() []Fault {
	switch {
	case s.Hubs == 2:
		return []Fault{{Kind: TakeoverStale, At: 2 * time.Second}, {Kind: TakeoverPaused, At: 8 * time.Second}, {Kind: TakeoverStale, At: 18 * time.Second}}
	case s.Hasty:
		return []Fault{{Kind: TakeoverPaused, At: time.Second}}
	}
	return nil
}

// inTakeover reports whether a fault would disturb a takeover: it hits a hub or, where there are two of them, a way to
// the API server.
func (s Stretch) inTakeover(on scope, f Fault) bool {
	if on != onProcess && (s.Hubs == 1 || on != onAPI && on != onSilence && on != onPlane) {
		return false
	}
	return slices.ContainsFunc(s.takeovers(), func(t Fault) bool { return f.At < t.At+takeoverTime && f.At+f.Length+podRest > t.At })
}

// possible reports whether a kind of fault may come in a stretch.
func (p planner) possible(s Stretch, k kind, target int) bool {
	switch {
	case k.when == hasty && !s.Hasty, k.when == hubsMayEnd && s.Hasty:
		return false
	case k.Kind == HubDoubled: // a process beyond the regular ones
		return target >= s.Hubs
	case k.scope == onProcess:
		return target < s.Hubs && !(k.when == hubsMayEnd && p.survives(s.Number, target))
	}
	return true
}
