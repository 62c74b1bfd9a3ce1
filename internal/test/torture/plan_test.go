package torture

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testSizes = [targets]int{32, 4, 2, 2, 4, 1}

func TestASeedFixesThePlan(t *testing.T) {
	plan := func(seed uint64) Stretch { return planner{seed: seed, faults: 1000, sizes: testSizes}.stretch(3) }
	if diff := cmp.Diff(plan(7), plan(7)); diff != "" {
		t.Errorf("the same seed plans something else:\n%s", diff)
	}
	if cmp.Equal(plan(7), plan(8)) {
		t.Error("another seed plans the same")
	}
}

func TestEveryKindOfFaultComesInALongRun(t *testing.T) {
	for seed := range uint64(20) {
		p := planner{seed: seed, faults: 1000, sizes: testSizes}
		seen := map[Kind]int{}
		for number := range p.stretches() {
			for _, f := range p.stretch(number).Faults {
				seen[f.Kind]++
			}
		}
		missing := 0
		for _, kind := range kinds {
			if seen[kind.Kind] == 0 {
				missing++
				t.Logf("seed %d: %s never comes", seed, kind.Kind)
			}
		}
		if missing > 2 { // what is rare may be missing in one seed
			t.Errorf("seed %d: %d kinds never come", seed, missing)
		}
	}
}

// kindOf returns the row of a fault's kind.
func kindOf(f Fault) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.Kind == f.Kind })]
}

func TestFaultsOfOneThingDoNotOverlap(t *testing.T) {
	p := planner{seed: 1, faults: 1000, sizes: testSizes}
	for number := range p.stretches() {
		until := map[slot]time.Duration{}
		for _, f := range p.stretch(number).Faults {
			c := kindOf(f).slot(f.Target)
			if f.At < until[c] {
				t.Errorf("stretch %d: %s begins at %v, when another lasts until %v", number, f, f.At, until[c])
			}
			until[c] = f.At + f.Length
		}
	}
}

// Where VolumeAttachments go without their finalizer, only the hub that has attached their volumes knows of them.
func TestNoHubEndsWhereAttachmentsGoWithoutTheirFinalizer(t *testing.T) {
	for seed := range uint64(20) {
		p := planner{seed: seed, faults: 1000, sizes: testSizes}
		for number := range p.stretches() {
			s := p.stretch(number)
			for _, f := range s.Faults {
				hubs := kindOf(f).hubs
				if hubs == 2 && s.Hubs == 1 || hubs == 1 && s.Hubs == 2 {
					t.Errorf("seed %d, stretch %d: %s", seed, number, f)
				}
				if hubs == 2 && p.survives(number, f.Target) {
					t.Errorf("seed %d, stretch %d: %s, though its growth is to be seen", seed, number, f)
				}
			}
		}
	}
}
