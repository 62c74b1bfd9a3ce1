package bench

import (
	"math"
	"slices"
	"time"
)

// percentile is the smallest of the sorted durations that p percent of them do not
// exceed, 0 when there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median is the middle value, or the mean of the two in the middle; NaN without values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
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
		out[f] = median(v)
	}
	return out
}
