package main

import (
	"cmp"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// Series is a line of a chart: a quantity that depends on another one, such as memory on the number of objects.
type Series struct {
	Chart  string  `json:"chart"`  // title of the chart; lines with the same one share it
	Name   string  `json:"name"`   // in the legend, such as a competitor's name
	X      string  `json:"x"`      // what the horizontal axis shows, with its unit
	Y      string  `json:"y"`      // what the vertical axis shows, with its unit
	Points []Point `json:"points"` // in the order of X
	// Fit adds the straight line that fits best, and its slope; nil: without.
	Fit *Fit `json:"fit,omitempty"`
}

// Fit says how a chart shows the slope of a Series. If Y is in MB, {"kB per PersistentVolume", 1000} shows 0.0008 MB as
// 0.8 kB per PersistentVolume.
type Fit struct {
	Unit   string  `json:"unit"`
	Factor float64 `json:"factor"` // from the unit of Y divided by that of X
}

// Point is a point of a Series.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Stack is a bar of a chart, which is divided into parts, such as the phases of an attach.
type Stack struct {
	Chart string `json:"chart"` // title of the chart; bars with the same one share it
	Name  string `json:"name"`  // beside the bar
	X     string `json:"x"`     // what the parts measure, with its unit
	Parts []Part `json:"parts"` // from left to right, with the same names in each bar of a chart
}

// Part is a part of a Stack.
type Part struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// fit returns the line through the points with the least squares: its value at 0, and its slope. A line needs points with
// two different X; otherwise the slope is 0.
func fit(points []Point) (base, slope float64) {
	var n, x, y, xx, xy float64
	for _, p := range points {
		n, x, y, xx, xy = n+1, x+p.X, y+p.Y, xx+p.X*p.X, xy+p.X*p.Y
	}
	if d := n*xx - x*x; d != 0 {
		slope = (n*xy - x*y) / d
	}
	return (y - slope*x) / max(n, 1), slope
}

// mergedSeries merges the series of all rounds: those of the same line into one with the medians at each X.
func mergedSeries(rounds []Series) []Series {
	var merged []Series
	for len(rounds) > 0 {
		line := rounds[0]
		var others []Series
		values := map[float64][]float64{}
		for _, s := range rounds {
			if s.Chart != line.Chart || s.Name != line.Name {
				others = append(others, s)
				continue
			}
			for _, p := range s.Points {
				values[p.X] = append(values[p.X], p.Y)
			}
		}
		line.Points = nil
		for x, ys := range values {
			line.Points = append(line.Points, Point{x, statistics.Median(ys)})
		}
		slices.SortFunc(line.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
		merged, rounds = append(merged, line), others
	}
	return merged
}

// mergedStacks merges the stacks of all rounds: those of the same bar into one with the medians of each part.
func mergedStacks(rounds []Stack) []Stack {
	var merged []Stack
	for len(rounds) > 0 {
		bar := rounds[0]
		var others []Stack
		values := map[string][]float64{}
		for _, s := range rounds {
			if s.Chart != bar.Chart || s.Name != bar.Name {
				others = append(others, s)
				continue
			}
			for _, p := range s.Parts {
				values[p.Name] = append(values[p.Name], p.Value)
			}
		}
		bar.Parts = slices.Clone(bar.Parts)
		for i, p := range bar.Parts {
			bar.Parts[i].Value = statistics.Median(values[p.Name])
		}
		merged, rounds = append(merged, bar), others
	}
	return merged
}
