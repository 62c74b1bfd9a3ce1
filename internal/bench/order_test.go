package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEachCompetitorIsAsOftenTheFirst(t *testing.T) {
	always := []competitor{{name: hubName}, {name: baselineName}}
	sidecars := []competitor{{name: sidecarName}, {name: tunedSidecarName}}
	for _, tt := range []struct {
		about        string
		c            Case
		sidecars     []competitor
		first, turns map[string]int
	}{
		{"two", Case{Rounds: 12}, nil, map[string]int{hubName: 6, baselineName: 6}, map[string]int{hubName: 12, baselineName: 12}},
		{"four", Case{Rounds: 4}, sidecars, map[string]int{hubName: 1, baselineName: 1, sidecarName: 1, tunedSidecarName: 1},
			map[string]int{hubName: 4, baselineName: 4, sidecarName: 4, tunedSidecarName: 4}},
		{"four, and sidecars in two rounds", Case{Rounds: 12, SidecarRounds: 2}, sidecars, map[string]int{hubName: 6, baselineName: 5, tunedSidecarName: 1},
			map[string]int{hubName: 12, baselineName: 12, sidecarName: 2, tunedSidecarName: 2}},
	} {
		first, turns := map[string]int{}, map[string]int{}
		for round := range tt.c.Rounds {
			for i, c := range tt.c.order(round, always, tt.sidecars) {
				if i == 0 {
					first[c.name]++
				}
				turns[c.name]++
			}
		}
		if diff := cmp.Diff(tt.turns, turns); diff != "" {
			t.Errorf("%s: turns: -want +got\n%s", tt.about, diff)
		}
		if diff := cmp.Diff(tt.first, first); diff != "" {
			t.Errorf("%s: first: -want +got\n%s", tt.about, diff)
		}
	}
}
