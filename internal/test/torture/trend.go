package torture

import (
	"math"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// Point is a value at a time since the begin of the load.
type Point struct {
	At    time.Duration
	Value float64
}

// Trend says how a value has moved over all points.
type Trend struct {
	Level float64 // at the begin
	// Rise from the begin to the end, minus what may be noise; negative: it has fallen.
	Rise  float64
	Slope float64 // per second, Theil and Sen's
}

const (
	// mostPoints bounds the points of a trend: the time that it takes grows with their square.
	mostPoints = 400
	// doubt is the number of standard errors that trendOf subtracts from a rise.
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

// line returns the two ends of the trend through the middle of the points.
func (t Trend) line(points []Point) [2]Point {
	middle := statistics.Median(residuals(points, t.Slope))
	at := func(p Point) Point { return Point{p.At, middle + t.Slope*p.At.Seconds()} }
	return [2]Point{at(points[0]), at(points[len(points)-1])}
}

// residuals returns the values minus what the slope explains.
func residuals(points []Point, slope float64) []float64 {
	rest := make([]float64, len(points))
	for i, p := range points {
		rest[i] = p.Value - slope*p.At.Seconds()
	}
	return rest
}

// noiseAround returns the standard deviation of the points around the line. It looks only at the half
// nearest to the line: outliers are no noise.
func noiseAround(points []Point, slope float64) float64 {
	rest := residuals(points, slope)
	middle := statistics.Median(rest)
	for i := range rest {
		rest[i] = math.Abs(rest[i] - middle)
	}
	return 1.4826 * statistics.Median(rest)
}

// theilSen returns the median of the slopes between all pairs of points.
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

// thinned replaces blocks of neighbours by their medians if there are too many points.
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
