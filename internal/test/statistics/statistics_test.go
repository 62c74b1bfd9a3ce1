package statistics

import (
	"math"
	"testing"
	"time"
)

func TestPercentileIsTheSmallestThatEnoughDoNotExceed(t *testing.T) {
	tests := []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 50, 0},
		{[]time.Duration{7}, 1, 7},
		{[]time.Duration{7}, 99, 7},
		{[]time.Duration{1, 2}, 50, 1},
		{[]time.Duration{1, 2, 3}, 50, 2},
		{[]time.Duration{1, 2, 3, 4}, 99, 4},
		{[]time.Duration{1, 2, 3, 4}, 75, 3},
		{[]time.Duration{1, 2, 3, 4}, 0, 1},
		{[]time.Duration{1, 2, 3, 4}, 100, 4},
	}
	for _, tt := range tests {
		if got := Percentile(tt.sorted, tt.p); got != tt.want {
			t.Errorf("percentile %v of %v: %d, want %d", tt.p, tt.sorted, got, tt.want)
		}
	}
}

func TestMedianIsTheValueInTheMiddle(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{[]float64{5}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := Median(tt.values); got != tt.want {
			t.Errorf("median of %v: %v, want %v", tt.values, got, tt.want)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing: %v", got)
	}
}
