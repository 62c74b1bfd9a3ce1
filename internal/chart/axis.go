package chart

import (
	"math"
	"strconv"
	"strings"
)

// mostTicks is how many numbers an axis has at most.
const mostTicks = 6

// Axis is an axis of a panel. It begins at 0 and ends above the highest value, unless it is logarithmic.
type Axis struct {
	Title string // with the unit
	Log   bool
	End   float64              // the lowest end of an axis that is not logarithmic
	Show  func(float64) string // formats the numbers; nil: Number
}

// scale places values of an axis on a line of some length.
type scale struct {
	low, high, length float64
	log               bool
	show              func(float64) string
}

// over returns the scale for values. The axis ends at room (1 or more) times the highest value.
func (a Axis) over(values []float64, length, room float64) scale {
	s := scale{high: a.End, length: length, log: a.Log, show: a.Show}
	if s.show == nil {
		s.show = Number
	}
	s.low = math.Inf(1)
	for _, v := range values {
		if isNumber(v) && (!a.Log || v > 0) {
			s.low, s.high = min(s.low, v), max(s.high, v*room)
		}
	}
	if s.high <= 0 {
		s.low, s.high = 1, 10 // no values
	}
	if !a.Log {
		s.low = 0
	} else {
		s.low, s.high = roundDown(s.low), -roundDown(-s.high)
	}
	return s
}

// roundDown returns the next lower number, or that itself, of the form 1, 2 or 5 and zeros. For a negative v it is the
// negative of the next higher number of -v.
func roundDown(v float64) float64 {
	up := v < 0
	v = math.Abs(v)
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	steps := []float64{1, 2, 5, 10}
	for i, step := range steps {
		if up && v <= step*decade*1.0001 {
			return -step * decade
		}
		if !up && (i == len(steps)-1 || v < steps[i+1]*decade*0.9999) {
			return step * decade
		}
	}
	return decade
}

// place returns the distance of a value from the beginning of the axis, in pixels.
func (s scale) place(v float64) float64 {
	if s.log {
		v = min(max(v, s.low), s.high)
		return math.Log(v/s.low) / math.Log(s.high/s.low) * s.length
	}
	return (v - s.low) / (s.high - s.low) * s.length
}

// ticks returns round numbers along the axis: 1, 2 or 5 and zeros apart. Those of a logarithmic axis have the form 1, 2 or
// 5 and zeros, or 1 and zeros if these are enough.
func (s scale) ticks() []float64 {
	var ticks []float64
	if s.log {
		factors := []float64{1, 2, 5}
		if s.high/s.low > 100 {
			factors = factors[:1]
		}
		for decade := math.Pow(10, math.Floor(math.Log10(s.low)+0.001)); decade <= s.high; decade *= 10 {
			for _, factor := range factors {
				if v := factor * decade; v >= s.low*0.999 && v <= s.high*1.001 {
					ticks = append(ticks, v)
				}
			}
		}
		return ticks
	}
	step := math.Pow(10, math.Floor(math.Log10(s.high/mostTicks)))
	for _, factor := range []float64{2, 2.5, 2} {
		if s.high/step > mostTicks {
			step *= factor
		}
	}
	for i := 0; float64(i)*step <= s.high*1.0001; i++ {
		ticks = append(ticks, float64(i)*step)
	}
	return ticks
}

// Number formats a number with up to four digits, and with commas between thousands.
func Number(v float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	text := strconv.FormatFloat(rounded, 'f', -1, 64)
	whole, fraction, _ := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}

func isNumber(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
