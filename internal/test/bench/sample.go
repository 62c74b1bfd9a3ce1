package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// Figures has the values of one measurement.
type Figures map[Figure]float64

// addIdle adds what a competitor takes without work.
func (f Figures) addIdle(u usage) {
	f.add(ResidentIdle, u.resident)
	f.add(HeapIdle, u.heap)
	f.add(GoroutinesIdle, u.goroutines)
}

// addEnd adds what a competitor takes after its work.
func (f Figures) addEnd(u usage) {
	f.add(ResidentEnd, u.resident)
	f.add(ResidentOwn, u.own)
	f.add(ResidentPeak, u.peak)
	f.add(HeapEnd, u.heap)
	f.add(GoroutinesEnd, u.goroutines)
}

// add adds a value unless it is unknown, which is negative.
func (f Figures) add(figure Figure, value float64) {
	if value >= 0 && !math.IsNaN(value) {
		f[figure] = value
	}
}

// Sample has the figures of one competitor in one round.
type Sample struct {
	Competitor string  `json:"competitor"`
	Round      int     `json:"round"` // from 1
	Figures    Figures `json:"figures"`
}

// Samples are those of a case.
type Samples []Sample

// competitors returns their names in the order of their first samples.
func (s Samples) competitors() []string {
	var names []string
	for _, one := range s {
		if !slices.Contains(names, one.Competitor) {
			names = append(names, one.Competitor)
		}
	}
	return names
}

// of returns the figures of a competitor by round.
func (s Samples) of(competitor string) map[int]Figures {
	rounds := map[int]Figures{}
	for _, one := range s {
		if one.Competitor == competitor {
			rounds[one.Round] = one.Figures
		}
	}
	return rounds
}

// speeds returns the lowest and the highest speed of the machine; 0: it was not measured.
func (s Samples) speeds() (slowest, fastest float64) {
	for _, one := range s {
		if speed := one.Figures[Speed]; speed > 0 {
			fastest = max(fastest, speed)
			if slowest == 0 || speed < slowest {
				slowest = speed
			}
		}
	}
	return slowest, fastest
}

// medians returns the medians of a competitor over the rounds.
func (s Samples) medians(competitor string) Figures {
	var rounds []Figures
	for _, figures := range s.of(competitor) {
		rounds = append(rounds, figures)
	}
	return medians(rounds)
}

// Ratio is a figure of one competitor divided by that of another one in the same round: what slows the machine down for a
// while slows both.
type Ratio struct {
	Median float64 `json:"median"` // over the pairs
	// Low and High are the quartiles of the pairs: the lowest and the highest if there are fewer than five.
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Pairs int     `json:"pairs"`
}

// String returns the median, and the quartiles if there is more than one pair.
func (r Ratio) String() string {
	if r.Pairs < 2 {
		return hundredths(r.Median)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", r.Median, r.Low, r.High)
}

// ratio compares a figure of two competitors. It returns false where no round has both.
func (s Samples) ratio(f Figure, competitor, to string) (Ratio, bool) {
	var ratios []float64
	others := s.of(to)
	for round, figures := range s.of(competitor) {
		value, ok := figures[f]
		other, also := others[round][f]
		if ok && also && other != 0 {
			ratios = append(ratios, value/other)
		}
	}
	if len(ratios) == 0 {
		return Ratio{}, false
	}
	low, high := quartiles(ratios)
	return Ratio{statistics.Median(ratios), low, high, len(ratios)}, true
}

// quartiles returns the values that a quarter of some values do not exceed, or are not below. They are as far from the
// lowest value as from the highest. It sorts the values, of which there must be one.
func quartiles(values []float64) (low, high float64) {
	slices.Sort(values)
	i := (len(values)+3)/4 - 1
	return values[i], values[len(values)-1-i]
}

// medians returns the median of each figure over the samples that have it.
func medians(samples []Figures) Figures {
	values := map[Figure][]float64{}
	for _, s := range samples {
		for f, v := range s {
			values[f] = append(values[f], v)
		}
	}
	out := Figures{}
	for f, v := range values {
		out[f] = statistics.Median(v)
	}
	return out
}
