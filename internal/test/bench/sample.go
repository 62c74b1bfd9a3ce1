package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// sample has the figures of one competitor in one round.
type sample struct {
	Competitor string  `json:"competitor"`
	Round      int     `json:"round"` // from 1
	Figures    Figures `json:"figures"`
}

// samples are those of a case.
type samples []sample

// competitors returns their names in the order of their first samples.
func (s samples) competitors() []string {
	var names []string
	for _, one := range s {
		if !slices.Contains(names, one.Competitor) {
			names = append(names, one.Competitor)
		}
	}
	return names
}

// values returns a figure of a competitor by round.
func (s samples) values(competitor string, f Figure) map[int]float64 {
	rounds := map[int]float64{}
	for _, one := range s {
		if v, measured := one.Figures[f]; measured && one.Competitor == competitor {
			rounds[one.Round] = v
		}
	}
	return rounds
}

// median returns the median of a figure over the rounds; false: it was not measured.
func (s samples) median(competitor string, f Figure) (float64, bool) {
	values := slices.Collect(maps.Values(s.values(competitor, f)))
	return statistics.Median(values), len(values) > 0
}

// ratio is a figure of the hub divided by that of the baseline in the same round: what slows the machine down for a while slows both.
type ratio struct {
	median    float64 // over the pairs
	low, high float64 // the quartiles of the pairs: the lowest and the highest if there are fewer than five
	pairs     int
}

// String returns the median, and the quartiles if there is more than one pair.
func (r ratio) String() string {
	if r.pairs < 2 {
		return hundredths(r.median)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", r.median, r.low, r.high)
}

// ratio compares hub and baseline. It returns false where no round has both.
func (s samples) ratio(f Figure) (ratio, bool) {
	var ratios []float64
	baseline := s.values(baselineName, f)
	for round, value := range s.values(hubName, f) {
		if other := baseline[round]; other != 0 {
			ratios = append(ratios, value/other)
		}
	}
	if len(ratios) == 0 {
		return ratio{}, false
	}
	low, high := quartiles(ratios)
	return ratio{statistics.Median(ratios), low, high, len(ratios)}, true
}

// quartiles returns the values that a quarter of some values do not exceed, or are not below. They are as far from the
// lowest value as from the highest. It sorts the values, of which there must be one.
func quartiles(values []float64) (low, high float64) {
	slices.Sort(values)
	i := (len(values)+3)/4 - 1
	return values[i], values[len(values)-1-i]
}

// medians returns the median of each figure over the measurements that have it.
func medians(all []Figures) Figures {
	values := map[Figure][]float64{}
	for _, one := range all {
		for f, v := range one {
			values[f] = append(values[f], v)
		}
	}
	out := Figures{}
	for f, v := range values {
		out[f] = statistics.Median(v)
	}
	return out
}
