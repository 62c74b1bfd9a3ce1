// Package progress estimates when something long ends, for the lines that benchmarks, chaos and soak print.
package progress

import (
	"fmt"
	"time"
)

// Left returns how much time is left when so much of the whole was done in the elapsed time, as a text such as
// "about 2m10s left". It is "time left unknown" if nothing is done yet, and "finishing" at the end.
func Left(elapsed time.Duration, done, whole float64) string {
	if done <= 0 || elapsed <= 0 {
		return "time left unknown"
	}
	if done >= whole {
		return "finishing"
	}
	left := time.Duration(float64(elapsed) * (whole - done) / done)
	step := time.Second
	if left > time.Minute {
		step = 10 * time.Second
	}
	return fmt.Sprintf("about %v left", left.Round(step))
}
