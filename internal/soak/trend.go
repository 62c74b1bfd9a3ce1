package soak

import (
	"math"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/statistics"
)

// Point is a value at a time since the begin of the load.
type Point struct {
	At    time.Duration
	Value float64
}

// Trend is how a value has moved over all points.
type Trend struct {
	Level float64 // at the begin
	// Rise is from the begin to the end, less what the noise may have made of it; negative: it has fallen.
	Rise  float64
	Slope float64 // per second, Theil and Sen's
}

const (
	// mostPoints is how many points a trend is made of: it takes their number squared.
	mostPoints = 400
	// doubt is how many standard errors are taken off a rise.
	doubt = 2
)

// trendOf needs leastSamples points, in the order of their time.
func trendOf(points []Point) Trend {
	points = thinned(points)
	slope := theilSen(points)
	noise, n := noiseAround(points, slope), float64(len(points))
	span := (points[len(points)-1].At - points[0].At).Seconds()
	bySlope := slope*span - doubt*noise*math.Sqrt(12/n)
	quarter := len(points) / 4
	first, last := statistics.Median(valuesOf(points[:quarter])), statistics.Median(valuesOf(points[len(points)-quarter:]))
	byMedians := last - first - doubt*noise*1.25*math.Sqrt(2/float64(quarter))
	// The slope overlooks a late jump, the medians a slow rise within the noise.
	return Trend{Level: first, Rise: max(bySlope, byMedians), Slope: slope}
}

// line goes through the middle of the points.
func (t Trend) line(points []Point) [2]Point {
	middle := statistics.Median(residuals(points, t.Slope))
	at := func(p Point) Point { return Point{p.At, middle + t.Slope*p.At.Seconds()} }
	return [2]Point{at(points[0]), at(points[len(points)-1])}
}

// residuals are what the slope does not explain of the values.
func residuals(points []Point, slope float64) []float64 {
	rest := make([]float64, len(points))
	for i, p := range points {
		rest[i] = p.Value - slope*p.At.Seconds()
	}
	return rest
}

// noiseAround is the standard deviation of the points around the line, of the half of
// them that are nearest to it: what stands out is no noise.
func noiseAround(points []Point, slope float64) float64 {
	rest := residuals(points, slope)
	middle := statistics.Median(rest)
	for i := range rest {
		rest[i] = math.Abs(rest[i] - middle)
	}
	return 1.4826 * statistics.Median(rest)
}

// theilSen is the median of the slopes between all pairs of points.
func theilSen(points []Point) float64 {
	var slopes []float64
	for i, a := range points {
		for _, b := range points[i+1:] {
			if b.At > a.At {
				slopes = append(slopes, (b.Value-a.Value)/(b.At-a.At).Seconds())
			}
		}
	}
	return statistics.Median(slopes)
}

// thinned has the medians of neighbours in the place of what is too many.
func thinned(points []Point) []Point {
	if len(points) <= mostPoints {
		return points
	}
	size := (len(points) + mostPoints - 1) / mostPoints
	var thin []Point
	for block := range slices.Chunk(points, size) {
		thin = append(thin, Point{block[len(block)/2].At, statistics.Median(valuesOf(block))})
	}
	return thin
}

func valuesOf(points []Point) []float64 {
	values := make([]float64, len(points))
	for i, p := range points {
		values[i] = p.Value
	}
	return values
}
