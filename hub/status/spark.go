package status

import (
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	sparkStep   = 2  // width of a slot
	sparkHeight = 24 // of the part for latencies
	sparkFeet   = 4  // of the part below, for failed tries
	// The scale is logarithmic and the same for all drivers, so that they can be compared:
	// from 10 ms at the bottom to 100 s at the top.
	sparkLeast, sparkMost = 10 * time.Millisecond, 100 * time.Second
)

// spark is a small picture of a driver's last quarter of an hour, with its numbers.
type spark struct {
	Width, Height, Base int
	Mean                string // path of the mean latencies
	Slowest             string // path of the slowest ones
	Failed              string // path of the slots with failed tries
	Done, Errors        int
	MeanText            string // "" if nothing was done
	SlowestText         string
}

func newSpark(h *history) spark {
	total := h.total()
	s := spark{Width: recentSlots * sparkStep, Height: sparkHeight + sparkFeet, Base: sparkHeight, Done: total.done, Errors: total.failed}
	if total.done > 0 {
		s.MeanText, s.SlowestText = duration(total.mean()), duration(total.slowest)
	}
	s.Mean = bars(h, sparkHeight, func(s slot) int { return barHeight(s.done, s.mean()) })
	s.Slowest = bars(h, sparkHeight, func(s slot) int { return barHeight(s.done, s.slowest) })
	s.Failed = bars(h, sparkHeight+sparkFeet, func(s slot) int { return min(s.failed, 1) * (sparkFeet - 1) })
	return s
}

// bars returns the outline of the bars of all slots as an SVG path. Adjacent bars are one figure, which
// keeps pages small.
func bars(h *history, bottom int, height func(slot) int) string {
	var path strings.Builder
	last := 0
	for i, s := range h {
		now := height(s)
		switch {
		case now == 0 && last > 0:
			fmt.Fprintf(&path, "V%dz", bottom)
		case now > 0 && last == 0:
			fmt.Fprintf(&path, "M%d %dV%dh%d", i*sparkStep, bottom, bottom-now, sparkStep)
		case now > 0 && now != last:
			fmt.Fprintf(&path, "V%dh%d", bottom-now, sparkStep)
		case now > 0:
			fmt.Fprintf(&path, "h%d", sparkStep)
		}
		last = now
	}
	if last > 0 {
		fmt.Fprintf(&path, "V%dz", bottom)
	}
	return path.String()
}

// barHeight returns 0 for no operation, else at least 1, so that the bar is visible.
func barHeight(n int, d time.Duration) int {
	if n == 0 {
		return 0
	}
	scale := math.Log(float64(sparkMost) / float64(sparkLeast))
	part := math.Log(float64(max(d, 1))/float64(sparkLeast)) / scale
	return max(1, min(sparkHeight, int(math.Round(part*sparkHeight))))
}
