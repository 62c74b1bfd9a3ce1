package main

import "testing"

func TestSeriesAreTheLinesThatAreNotComments(t *testing.T) {
	const text = "# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 0\na_bucket{le=\"+Inf\"} 0\na_sum 0\na_count 0\n"
	if got := seriesIn([]byte(text)); got != 4 {
		t.Errorf("%d series, want 4", got)
	}
}
