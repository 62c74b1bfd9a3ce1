package torture

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testSizes = map[scope]int{
	onPod: 32, onServer: 4, onBehaviour: 4, onLatency: 4, onReadiness: 4, onAnswers: 4, onSettings: 4, onSecret: 4,
	onProcess: 2, onAPI: 2, onSilence: 2, onNode: 4, onCSINode: 4, onVolume: 24,
}

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
			c := slot{kindOf(f).scope, f.Target}
			if f.At < until[c] && !c.scope.shared() {
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
			if s.Hasty && s.Hubs != 1 {
				t.Errorf("seed %d, stretch %d: %d hubs", seed, number, s.Hubs)
			}
			for _, f := range s.Faults {
				when := kindOf(f).when
				if when == hubsMayEnd && s.Hasty || when == hasty && !s.Hasty {
					t.Errorf("seed %d, stretch %d: %s", seed, number, f)
				}
				if when == hubsMayEnd && f.Kind != HubDoubled && p.survives(number, f.Target) {
					t.Errorf("seed %d, stretch %d: %s, though its growth is to be seen", seed, number, f)
				}
			}
		}
	}
}
