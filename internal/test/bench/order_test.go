package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHubAndFloorAreNeighboursAndEachIsTheFirstInEverySecondRound(t *testing.T) {
	always := []competitor{{name: hubName}, {name: baselineName}}
	sidecars := []competitor{{name: sidecarName}, {name: tunedSidecarName}}
	var got []string
	for round := range 8 {
		var names []string
		for _, c := range (Case{Rounds: 8, SidecarRounds: 2}).order(round, always, sidecars) {
			names = append(names, c.name)
		}
		got = append(got, strings.Join(names, ", "))
	}
	want := []string{
		"hub, floor, csi-attacher, csi-attacher tuned", "floor, hub", "hub, floor", "floor, hub",
		"csi-attacher tuned, csi-attacher, hub, floor", "floor, hub", "hub, floor", "floor, hub",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestACaseWithoutSidecarsHasPairsOnly(t *testing.T) {
	alone := []competitor{{name: hubName}}
	for round := range 3 {
		if got := (Case{Rounds: 3}).order(round, alone, nil); len(got) != 1 || got[0].name != hubName {
			t.Errorf("round %d: %v, want the hub", round, got)
		}
	}
}
