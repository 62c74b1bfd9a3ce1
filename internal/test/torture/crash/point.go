package crash

import "fmt"

// Phase says when a process is killed: how far the step has come.
type Phase int

const (
	// Before: the request was sent and has no effect.
	Before Phase = iota
	// Effected: the request took effect, and its answer is lost.
	Effected
	// After: the answer has come back, and the process has no effect after that.
	After
)

func (p Phase) String() string { return [...]string{"before", "without the answer of", "after"}[p] }

// Point is where a process is killed. Its step is the name of one write or call of one driver, as a tape
// records it. Names do not depend on the order of requests that are sent side by side.
type Point struct {
	Step  string
	Phase Phase
}

func (p Point) String() string { return fmt.Sprintf("%s %q", p.Phase, p.Step) }

// Points returns all points of the steps that a run without a crash has recorded.
func Points(steps []string) []Point {
	var points []Point
	for _, s := range steps {
		for phase := Before; phase <= After; phase++ {
			points = append(points, Point{s, phase})
		}
	}
	return points
}
