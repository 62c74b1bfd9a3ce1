package bench

import (
	"math"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/statistics"
)

// Figures are the values of one measurement.
type Figures map[Figure]float64

// addIdle adds what a competitor takes that has nothing to do.
func (f Figures) addIdle(u usage) {
	f.add(ResidentIdle, u.resident)
	f.add(HeapIdle, u.heap)
	f.add(GoroutinesIdle, u.goroutines)
}

// addEnd adds what it takes after its work.
func (f Figures) addEnd(u usage) {
	f.add(ResidentEnd, u.resident)
	f.add(ResidentOwn, u.own)
	f.add(ResidentPeak, u.peak)
	f.add(HeapEnd, u.heap)
	f.add(GoroutinesEnd, u.goroutines)
}

// add takes a value that is known: it is not negative.
func (f Figures) add(figure Figure, value float64) {
	if value >= 0 && !math.IsNaN(value) {
		f[figure] = value
	}
}

// Sample is what one competitor did in one round.
type Sample struct {
	Competitor string  `json:"competitor"`
	Round      int     `json:"round"` // from 1
	Figures    Figures `json:"figures"`
}

// Samples are those of a case.
type Samples []Sample

// competitors are in the order in which they came first.
func (s Samples) competitors() []string {
	var names []string
	for _, one := range s {
		if !slices.Contains(names, one.Competitor) {
			names = append(names, one.Competitor)
		}
	}
	return names
}

// of are the figures of a competitor, by round.
func (s Samples) of(competitor string) map[int]Figures {
	rounds := map[int]Figures{}
	for _, one := range s {
		if one.Competitor == competitor {
			rounds[one.Round] = one.Figures
		}
	}
	return rounds
}

// medians are those of a competitor over the rounds.
func (s Samples) medians(competitor string) Figures {
	var rounds []Figures
	for _, figures := range s.of(competitor) {
		rounds = append(rounds, figures)
	}
	return medians(rounds)
}

// ratio is the median over the rounds of what one competitor had to what another one
// had in the same round: what slows the machine down for a while slows both. It is
// false where there is nothing to compare.
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

// medians is a sample that has the median of each figure; a figure that some samples
// lack is that of the others.
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
