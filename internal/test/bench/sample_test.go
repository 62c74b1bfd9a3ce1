package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMediansAreThoseOfTheRoundsThatHaveTheFigure(t *testing.T) {
	got := medians([]Figures{{AttachRate: 1, HeapIdle: 8}, {AttachRate: 3}, {AttachRate: 2}})
	if diff := cmp.Diff(Figures{AttachRate: 2, HeapIdle: 8}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRatioComparesWithinEachRound(t *testing.T) {
	// The machine was slow in the second round, and the floor is missing in the last one.
	s := Samples{
		{hubName, 1, Figures{AttachRate: 90}}, {baselineName, 1, Figures{AttachRate: 100}},
		{hubName, 2, Figures{AttachRate: 8}}, {baselineName, 2, Figures{AttachRate: 10}},
		{hubName, 3, Figures{AttachRate: 70}}, {baselineName, 3, Figures{AttachRate: 100}},
		{hubName, 4, Figures{AttachRate: 1}},
	}
	if got, ok := s.ratio(AttachRate, hubName, baselineName); !ok || math.Abs(got.Median-0.8) > 1e-9 || got.Low != 0.7 || got.High != 0.9 || got.Pairs != 3 {
		t.Errorf("ratio %+v %v, want 0.8, from 0.7 to 0.9", got, ok)
	}
	if got, ok := s.ratio(Reads, hubName, baselineName); ok {
		t.Errorf("ratio of what was not measured: %v", got)
	}
	if diff := cmp.Diff([]string{hubName, baselineName}, s.competitors()); diff != "" {
		t.Error(diff)
	}
}
