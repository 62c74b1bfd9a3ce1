package main

import (
	"fmt"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// forecast estimates how long a case and all after it still take: from the turns that were taken, and for others from an
// earlier report. It is not for several goroutines at once.
type forecast struct {
	last   Result                     // of an earlier run of this case; may be empty
	turns  []string                   // the competitors of all turns of the case
	ready  bool                       // the stage is set, and turns begin
	taken  int                        // turns that have ended
	took   map[string][]time.Duration // by competitor
	after  time.Duration              // the cases after this one
	hidden bool                       // some of those are not in the earlier report
	began  time.Time                  // the turn, or the preparation
}

// newForecast returns the forecast for a case that begins.
func newForecast(o Options, c Case) *forecast {
	f := &forecast{last: o.Last.of(c.Name), turns: turnsOf(o, c), took: map[string][]time.Duration{}, began: time.Now()}
	for _, next := range o.after {
		later := forecast{last: o.Last.of(next.Name), turns: turnsOf(o, next)}
		left, known := later.left(0)
		if !known {
			f.hidden = true
		}
		f.after += left
	}
	return f
}

// of returns the result of a case; empty: there is none.
func (r Report) of(name string) Result {
	for _, c := range r.Cases {
		if c.Name == name {
			return c
		}
	}
	return Result{}
}

// turnsOf returns the competitors of all turns of a case.
func turnsOf(o Options, c Case) []string {
	var turns []string
	s := &stage{opts: o, c: c}
	for round := range c.Rounds {
		for _, competitor := range s.competitors(round) {
			turns = append(turns, competitor.name)
		}
	}
	return turns
}

// turnEnded notes that the next turn begins.
func (f *forecast) turnEnded(took time.Duration) {
	name := f.turns[f.taken]
	f.took[name] = append(f.took[name], took)
	f.taken++
	f.began = time.Now()
}

// prepared notes that the first turn begins.
func (f *forecast) prepared() {
	f.ready = true
	f.began = time.Now()
}

// turn returns how long a turn of a competitor takes; false: nobody knows.
func (f *forecast) turn(name string) (time.Duration, bool) {
	if took := f.took[name]; len(took) > 0 {
		var sum time.Duration
		for _, t := range took {
			sum += t
		}
		return sum / time.Duration(len(took)), true
	}
	if took := f.last.Medians[name][TurnTook]; took > 0 {
		return time.Duration(took * float64(time.Second)), true
	}
	// A report of an earlier version, or a competitor that took no part.
	if whole, err := time.ParseDuration(f.last.Took); err == nil && len(f.last.Samples) > 0 {
		return whole / time.Duration(len(f.last.Samples)), true
	}
	var all []float64
	for _, took := range f.took {
		for _, t := range took {
			all = append(all, float64(t))
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return time.Duration(statistics.Median(all)), true
}

// preparation returns how long the case took before its first turn in the earlier report; 0: nobody knows.
func (f *forecast) preparation() time.Duration {
	whole, err := time.ParseDuration(f.last.Took)
	if err != nil {
		return 0
	}
	for _, s := range f.last.Samples {
		took, measured := s.Figures[TurnTook]
		if !measured {
			return 0
		}
		whole -= time.Duration(took * float64(time.Second))
	}
	return max(whole, 0)
}

// left returns how long the case still takes when its turn, or its preparation, has gone on for elapsed. It returns false if
// it cannot tell.
func (f *forecast) left(elapsed time.Duration) (time.Duration, bool) {
	var left time.Duration
	if !f.ready {
		left = max(f.preparation()-elapsed, 0)
	}
	for i, name := range f.turns[f.taken:] {
		turn, known := f.turn(name)
		if !known {
			return 0, false
		}
		if f.ready && i == 0 {
			turn = max(turn-elapsed, 0)
		}
		left += turn
	}
	return left, true
}

// text returns how much time is left at a moment, for the case and for the whole run.
func (f *forecast) text(now time.Time) string {
	left, known := f.left(now.Sub(f.began))
	if !known {
		return "this case: time left unknown"
	}
	text := "this case: about " + roughly(left)
	if f.after == 0 && !f.hidden {
		return text + " left"
	}
	word := "about"
	if f.hidden {
		word = "more than"
	}
	return fmt.Sprintf("%s left, all: %s %s", text, word, roughly(left+f.after))
}

// roughly rounds a time to seconds, and one of more than a minute to tens of seconds.
func roughly(d time.Duration) string {
	step := time.Second
	if d > time.Minute {
		step = 10 * time.Second
	}
	return d.Round(step).String()
}
