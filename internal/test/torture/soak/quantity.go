package soak

import (
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// Sample has the metrics of the hub at one moment.
type Sample struct {
	At time.Duration // since the begin of the load
	testbed.Vitals
}

// Quantity is a property of the hub that changes with time.
type Quantity struct {
	Name, Unit string
	of         func(before, now Sample) float64
	// part and least bound the rise: to that part of the level or to so many units, whichever
	// is larger. Without both, growth is no fault.
	part, least float64
}

const mebibyte = 1 << 20

// quantities are all drawn; Judge judges those with a bound.
var quantities = []Quantity{
	{Name: "resident memory", Unit: "MiB", part: 0.10, least: 8, of: func(_, s Sample) float64 { return float64(s.RSS) / mebibyte }},
	{Name: "heap after GC", Unit: "MiB", part: 0.05, least: 1, of: func(_, s Sample) float64 { return float64(s.Heap) / mebibyte }},
	{Name: "goroutines", part: 0.03, least: 4, of: func(_, s Sample) float64 { return float64(s.Goroutines) }},
	{Name: "descriptors", part: 0.03, least: 2, of: func(_, s Sample) float64 { return float64(s.Descriptors) }},
	{Name: "waiting", Unit: "VolumeAttachments", part: 0.25, least: 10, of: func(_, s Sample) float64 { return float64(s.Queued) }},
	{Name: "operations", Unit: "per second", of: func(before, now Sample) float64 {
		return perSecond(before, now, float64(now.Attached+now.Detached-before.Attached-before.Detached))
	}},
	{Name: "failed tries", Unit: "per second", of: func(before, now Sample) float64 {
		return perSecond(before, now, float64(now.Failed-before.Failed))
	}},
	{Name: "processors in use", of: func(before, now Sample) float64 {
		return perSecond(before, now, (now.CPU - before.CPU).Seconds())
	}},
}

func perSecond(before, now Sample, n float64) float64 { return n / (now.At - before.At).Seconds() }

// points returns the values of a quantity, from the second sample on.
func (q Quantity) points(samples []Sample) []Point {
	var points []Point
	for i, s := range samples[1:] {
		points = append(points, Point{s.At, q.of(samples[i], s)})
	}
	return points
}

// bounded reports whether growth is a fault.
func (q Quantity) bounded() bool { return q.part > 0 || q.least > 0 }

// Finding is the judgement of one quantity of a run, without its warm-up.
type Finding struct {
	Quantity
	Trend
	Points  []Point  // with those of the warm-up
	Line    [2]Point // the trend, from the end of the warm-up
	Allowed float64  // largest rise; 0 where growth is no fault
	Grew    bool     // by more than Allowed
}

// warmUp is the part of a run that Judge leaves out: pools and caches fill in it.
const warmUp = 0.25

// Judge judges every quantity. It needs at least as many samples as Run takes.
func Judge(samples []Sample) []Finding {
	var findings []Finding
	for _, q := range quantities {
		f := Finding{Quantity: q, Points: q.points(samples)}
		f.Trend = trendOf(warm(f.Points))
		f.Line = f.line(warm(f.Points))
		if q.bounded() {
			f.Allowed = max(q.least, q.part*f.Level)
			f.Grew = f.Rise > f.Allowed
		}
		findings = append(findings, f)
	}
	return findings
}

// warm returns the points after the warm-up.
func warm(points []Point) []Point {
	from := time.Duration(warmUp * float64(points[len(points)-1].At))
	return points[slices.IndexFunc(points, func(p Point) bool { return p.At >= from }):]
}
