package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoundsOfALineAreMergedIntoMedians(t *testing.T) {
	line := func(name string, points ...Point) Series { return Series{Chart: "memory", Name: name, Points: points} }
	got := mergedSeries([]Series{
		line(hubName, Point{10, 1}, Point{20, 2}), line(baselineName, Point{10, 7}),
		line(hubName, Point{20, 4}, Point{10, 3}), line(hubName, Point{5, 1}, Point{10, 9}),
		{Chart: "goroutines", Name: hubName, Points: []Point{{10, 50}}},
	})
	want := []Series{
		line(hubName, Point{5, 1}, Point{10, 3}, Point{20, 3}), line(baselineName, Point{10, 7}),
		{Chart: "goroutines", Name: hubName, Points: []Point{{10, 50}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestRoundsOfABarAreMergedIntoMedians(t *testing.T) {
	bar := func(name string, wait, call float64) Stack {
		return Stack{Chart: "attach", Name: name, Parts: []Part{{"wait", wait}, {"call", call}}}
	}
	rounds := []Stack{bar(hubName, 1, 5), bar(baselineName, 9, 9), bar(hubName, 2, 5), bar(hubName, 9, 4)}
	want := []Stack{bar(hubName, 2, 5), bar(baselineName, 9, 9)}
	if diff := cmp.Diff(want, mergedStacks(rounds)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if rounds[0].Parts[0].Value != 1 {
		t.Error("the rounds are changed")
	}
}

func TestALineIsFittedThroughPoints(t *testing.T) {
	for _, tt := range []struct {
		about       string
		points      []Point
		base, slope float64
	}{
		{"on a line", []Point{{0, 5}, {10, 7}, {20, 9}}, 5, 0.2},
		{"beside a line", []Point{{0, 1}, {0, 3}, {10, 11}, {10, 13}}, 2, 1},
		{"one point", []Point{{3, 4}}, 4, 0},
		{"none", nil, 0, 0},
	} {
		base, slope := fit(tt.points)
		if math.Abs(base-tt.base) > 1e-9 || math.Abs(slope-tt.slope) > 1e-9 {
			t.Errorf("%s: %v + %v x, want %v + %v x", tt.about, base, slope, tt.base, tt.slope)
		}
	}
}
