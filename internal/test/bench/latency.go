package main

import (
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/chart"
)

// The charts of latencies.
const (
	attachChart = "attach latency"
	detachChart = "detach latency"
)

// percentiles are those of the charts.
var percentiles = []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100}

func isLatency(s Series) bool { return s.Chart == attachChart || s.Chart == detachChart }

// latencies returns the percentiles of all attaches and detaches of a turn.
func latencies(competitor string, bursts []burst) []Series {
	var attach, detach timing
	for _, b := range bursts {
		attach.took, detach.took = append(attach.took, b.attach.took...), append(detach.took, b.detach.took...)
	}
	return []Series{attach.distribution(attachChart, competitor), detach.distribution(detachChart, competitor)}
}

// distribution returns percentiles as a line of a chart. It sorts the times.
func (t timing) distribution(title, competitor string) Series {
	slices.Sort(t.took)
	s := Series{Chart: title, Name: competitor, X: "percentile", Y: "seconds"}
	for _, p := range percentiles {
		s.Points = append(s.Points, Point{X: p, Y: t.percentile(p)})
	}
	return s
}

// seconds formats a number of an axis in seconds, such as "20 ms" and "5 s".
func seconds(v float64) string {
	if v < 0.999 {
		return chart.Number(v*float64(time.Second/time.Millisecond)) + " ms"
	}
	return chart.Number(v) + " s"
}

// axisText returns how an axis of a figure formats its numbers; nil: as chart.Number.
func axisText(f Figure) func(float64) string {
	if f == ResidentEnd || f == ResidentPeak {
		return func(v float64) string { return chart.Number(v/1e6) + " MB" }
	}
	return nil
}
