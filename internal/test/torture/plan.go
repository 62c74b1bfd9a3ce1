package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// stretchFaults is how many faults there are between two quiets.
	stretchFaults = 100
	// pace is the average time from the begin of one fault to the begin of the next, for each hub: two hubs need time to take over.
	pace = 100 * time.Millisecond
	// targetRest is the time from the end of a fault to the next one of the same kind and target.
	targetRest = 500 * time.Millisecond
)

// Fault is one fault of a plan.
type Fault struct {
	Kind   Kind
	At     time.Duration // after the begin of its stretch
	Length time.Duration // 0: it is over at once
	Target int           // which pod, driver, hub, node or volume, by its kind
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
	Hubs   int // processes. With one, which does not end, VolumeAttachments may go without their finalizer.
	Faults []Fault
}

// planner makes the plan of a run. The plan depends on these fields alone.
type planner struct {
	seed   uint64
	faults int
	sizes  [targets]int
}

// stretches returns how many stretches the planned faults make.
func (p planner) stretches() int { return max(2, (p.faults+stretchFaults-1)/stretchFaults) }

// survives reports whether a hub must live through a stretch. The first hub lives through the second
// half of the run, so that its growth shows.
func (p planner) survives(number, hub int) bool { return hub == 0 && number >= max(2, p.stretches()/2) }

// slot is where one fault at a time may be.
type slot struct {
	kind   Kind // of all kinds that hit a process: empty
	target int
}

// stretch plans one stretch. It depends on no other stretch.
func (p planner) stretch(number int) Stretch {
	random := rand.New(rand.NewPCG(p.seed, uint64(number)))
	s := Stretch{Number: number, Hubs: 2 - number%2}
	// A stretch begins with what is sharpest, while the first hub leads every driver and nothing else is wrong.
	late := Fault{Kind: HubPausedLate, At: time.Second, Length: resumeAt, Draw: random.Uint64()}
	s.Faults = append(s.Faults, late)
	until := map[slot]time.Duration{} // when a slot is free again
	for at := late.At + late.Length + targetRest; len(s.Faults) < stretchFaults; {
		k := drawKind(random)
		f := Fault{Kind: k.Kind, At: at, Target: random.IntN(p.sizes[k.target])}
		if k.most > 0 {
			f.Length = k.least + time.Duration(random.Int64N(int64(k.most-k.least)))
		}
		in := k.slot(f.Target)
		if !p.possible(s, k, f.Target) || at < until[in] {
			continue
		}
		until[in] = at + f.Length + targetRest
		f.Draw = random.Uint64()
		s.Faults = append(s.Faults, f)
		at += time.Duration(random.ExpFloat64() * float64(s.Hubs) * float64(pace))
	}
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

func (k kind) slot(target int) slot {
	if k.target == aProcess {
		return slot{"", target}
	}
	return slot{k.Kind, target}
}

// possible reports whether a kind of fault may come in a stretch.
func (p planner) possible(s Stretch, k kind, target int) bool {
	ends := k.target == aProcess && k.hubs == 2
	return (k.hubs == 0 || k.hubs == s.Hubs) && (k.target != aProcess || target < s.Hubs) && !(ends && p.survives(s.Number, target))
}
