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

// spark is a driver's last quarter of an hour as a small picture, and in words.
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
	var mean, slowest, failed strings.Builder
	for i, slot := range h {
		x := i * sparkStep
		if slot.done > 0 {
			bar(&mean, x, sparkHeight, barHeight(slot.mean()))
			bar(&slowest, x, sparkHeight, barHeight(slot.slowest))
		}
		if slot.failed > 0 {
			bar(&failed, x, sparkHeight+sparkFeet, sparkFeet-1)
		}
	}
	s.Mean, s.Slowest, s.Failed = mean.String(), slowest.String(), failed.String()
	return s
}

// bar adds an upright bar to a path.
func bar(path *strings.Builder, x, bottom, height int) {
	fmt.Fprintf(path, "M%d %dh%dv-%dh-%dz", x, bottom, sparkStep, height, sparkStep)
}

// barHeight is at least 1, so that what there was is seen.
func barHeight(d time.Duration) int {
	scale := math.Log(float64(sparkMost) / float64(sparkLeast))
	part := math.Log(float64(max(d, 1))/float64(sparkLeast)) / scale
	return max(1, min(sparkHeight, int(math.Round(part*sparkHeight))))
}
