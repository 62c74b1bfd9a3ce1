package bench

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentileIsTheSmallestThatEnoughDoNotExceed(t *testing.T) {
	tests := []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 50, 0},
		{[]time.Duration{7}, 1, 7},
		{[]time.Duration{1, 2, 3}, 50, 2},
		{[]time.Duration{1, 2, 3, 4}, 99, 4},
		{[]time.Duration{1, 2, 3, 4}, 75, 3},
		{[]time.Duration{1, 2, 3, 4}, 100, 4},
	}
	for _, tt := range tests {
		if got := percentile(tt.sorted, tt.p); got != tt.want {
			t.Errorf("percentile %v of %v: %d, want %d", tt.p, tt.sorted, got, tt.want)
		}
	}
}

func TestMedianIsTheValueInTheMiddle(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{[]float64{5}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median of %v: %v, want %v", tt.values, got, tt.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing: %v", got)
	}
}

func TestMediansAreThoseOfTheRoundsThatHaveTheFigure(t *testing.T) {
	got := medians([]Figures{{AttachRate: 1, HeapIdle: 8}, {AttachRate: 3}, {AttachRate: 2}})
	if diff := cmp.Diff(Figures{AttachRate: 2, HeapIdle: 8}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRatioComparesWithinEachRound(t *testing.T) {
	// The machine was slow in the second round, and the floor is missing in the last one.
	s := Samples{
		{hubName, 1, Figures{AttachRate: 90}}, {floorName, 1, Figures{AttachRate: 100}},
		{hubName, 2, Figures{AttachRate: 8}}, {floorName, 2, Figures{AttachRate: 10}},
		{hubName, 3, Figures{AttachRate: 70}}, {floorName, 3, Figures{AttachRate: 100}},
		{hubName, 4, Figures{AttachRate: 1}},
	}
	if got, ok := s.ratio(AttachRate, hubName, floorName); !ok || math.Abs(got-0.8) > 1e-9 {
		t.Errorf("ratio %v %v, want 0.8", got, ok)
	}
	if got, ok := s.ratio(Reads, hubName, floorName); ok {
		t.Errorf("ratio of what was not measured: %v", got)
	}
	if diff := cmp.Diff([]string{hubName, floorName}, s.competitors()); diff != "" {
		t.Error(diff)
	}
}
