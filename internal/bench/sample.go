package bench

import (
	"math"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/statistics"
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

// medians returns the medians of a competitor over the rounds.
func (s Samples) medians(competitor string) Figures {
	var rounds []Figures
	for _, figures := range s.of(competitor) {
		rounds = append(rounds, figures)
	}
	return medians(rounds)
}

// ratio returns the median, over the rounds, of a figure of one competitor divided by that of another
// one in the same round: what slows the machine down for a while slows both. It returns false
// where no round has both.
func (s Samples) ratio(f Figure, competitor, to string) (float64, bool) {
	var ratios []float64
	others := s.of(to)
	for round, figures := range s.of(competitor) {
		value, ok := figures[f]
		other, also := others[round][f]
		if ok && also && other != 0 {
			ratios = append(ratios, value/other)
		}
	}
	return statistics.Median(ratios), len(ratios) > 0
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
