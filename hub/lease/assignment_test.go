package lease

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func replicasWith(n int, drivers []string) []Member {
	var all []Member
	for i := range n {
		all = append(all, Member{Identity: fmt.Sprintf("hub-%d_%x", i, rand.Uint64()), Drivers: drivers})
	}
	return all
}

func drivers(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%02d.csi.example.com", i))
	}
	return names
}

func loads(owners map[string]string) map[string]int {
	load := map[string]int{}
	for _, owner := range owners {
		load[owner]++
	}
	return load
}

func TestNoReplicaGetsMoreThanHalfAsManyAgain(t *testing.T) {
	for range 2000 {
		all := replicasWith(1+rand.IntN(9), drivers(1+rand.IntN(60)))
		owners := assign(all)
		if len(owners) != len(all[0].Drivers) {
			t.Fatalf("%d drivers have an owner, want %d", len(owners), len(all[0].Drivers))
		}
		for id, n := range loads(owners) {
			if most := maxDrivers(len(owners), len(all)); n > most {
				t.Fatalf("%d drivers, %d members: %s gets %d, more than %d", len(owners), len(all), id, n, most)
			}
		}
	}
	if most := maxDrivers(30, 3); most != 15 {
		t.Errorf("with 30 drivers and 3 members one gets up to %d, want 15", most)
	}
}

func TestAllReplicasComputeTheSame(t *testing.T) {
	for range 200 {
		all := replicasWith(1+rand.IntN(6), nil)
		for i := range all {
			for _, d := range drivers(30) {
				if rand.IntN(3) > 0 {
					all[i].Drivers = append(all[i].Drivers, d)
				}
			}
		}
		want := assign(all)
		shuffled := slices.Clone(all)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if got := assign(shuffled); !maps.Equal(got, want) {
			t.Fatalf("shares differ:\n%v\n%v", got, want)
		}
	}
}

func TestOnlyWhoIsAbleToServeADriverGetsIt(t *testing.T) {
	a := Member{Identity: "a", Drivers: drivers(10)}
	b := Member{Identity: "b", Drivers: drivers(1)}
	idle := Member{Identity: "c"}
	owners := assign([]Member{a, b, idle})
	if len(owners) != 10 {
		t.Errorf("%d drivers have an owner, want all 10", len(owners))
	}
	for d, owner := range owners {
		if owner != "a" && d != drivers(1)[0] {
			t.Errorf("%s belongs to %s, which cannot serve it", d, owner)
		}
	}
	if got := assign(nil); len(got) != 0 {
		t.Errorf("nobody shares %v", got)
	}
}

// moves counts the drivers whose owner differs, and those of them that need not have
// moved: neither their old nor their new owner is the one that came or went.
func moves(before, after map[string]string, changed string) (moved, displaced int) {
	for d, owner := range before {
		if after[d] != owner {
			moved++
			if owner != changed && after[d] != changed {
				displaced++
			}
		}
	}
	return moved, displaced
}

func TestJoiningAndLeavingMoveLittleElse(t *testing.T) {
	const rounds, n = 3000, 30
	var total, moved, displaced, worst int
	for range rounds {
		size := 2 + rand.IntN(4)
		all := replicasWith(size+1, drivers(n))
		without, with := assign(all[:size]), assign(all)
		// Joining and leaving are the same step, seen from its two ends.
		m, d := moves(without, with, all[size].Identity)
		total, moved, displaced, worst = total+n, moved+m, displaced+d, max(worst, d)
	}
	t.Logf("of %d drivers %.1f%% moved, %.2f%% between replicas that stayed; at worst %d of %d", total,
		100*float64(moved)/float64(total), 100*float64(displaced)/float64(total), worst, n)
	if displaced*100 > total*3 {
		t.Errorf("%d of %d drivers moved between replicas that stayed, more than 3%%", displaced, total)
	}
	if worst > n/3 {
		t.Errorf("in one step %d of %d drivers moved between replicas that stayed", worst, n)
	}
}
