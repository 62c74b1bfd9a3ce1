package status

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// recentSlots times slotLength is the time that the page shows: a quarter of an hour.
	recentSlots = 60
	slotLength  = 15 * time.Second

	sparkStep   = 2  // width of a slot in the picture
	sparkHeight = 24 // of the part for latencies
	sparkFeet   = 28 // bottom of the part below, for failed tries

	bar = "M%d %dv-%d" // of SVG: x, bottom, height
)

// recent counts how a driver's operations of the last quarter of an hour ended, in slots of equal
// length. Its size never changes.
type recent struct {
	mu    sync.Mutex
	slots [recentSlots]slot // index: the number of the slot modulo recentSlots; guarded by mu
}

// slot counts what ended in one slot of time.
type slot struct {
	number       int64 // of the slot since 1970; the other fields are about this slot only
	done, failed int
	sum, slowest time.Duration // of what the done operations took, each from its event
}

func slotNumber(t time.Time) int64 { return t.UnixNano() / int64(slotLength) }

// add counts an operation that ended now.
func (r *recent) add(now time.Time, result Result, took time.Duration) {
	number := slotNumber(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[number%recentSlots]
	if s.number != number {
		*s = slot{number: number}
	}
	if result != Success {
		s.failed++
		return
	}
	s.done++
	s.sum += took
	s.slowest = max(s.slowest, took)
}

// spark is a small picture of a driver's last quarter of an hour, with its numbers. Each of its SVG paths has a bar for
// each slot: the mean latency, the slowest one, and whether a try failed.
type spark struct {
	Mean, Slowest, Failed string
	Done, Errors          int
	MeanText, SlowestText string // "" if nothing was done
}

// spark returns the picture, nil if nothing ended.
func (r *recent) spark(now time.Time) *spark {
	r.mu.Lock()
	defer r.mu.Unlock()
	var p spark
	var sum, slowest time.Duration
	first := slotNumber(now) - recentSlots + 1
	for i := range int64(recentSlots) {
		s := r.slots[(first+i)%recentSlots]
		if s.number != first+i {
			continue
		}
		x := sparkStep*i + sparkStep/2
		if s.done > 0 {
			p.Mean += fmt.Sprintf(bar, x, sparkHeight, barHeight(s.sum/time.Duration(s.done)))
			p.Slowest += fmt.Sprintf(bar, x, sparkHeight, barHeight(s.slowest))
		}
		if s.failed > 0 {
			p.Failed += fmt.Sprintf(bar, x, sparkFeet, sparkFeet-sparkHeight-1)
		}
		p.Done, p.Errors = p.Done+s.done, p.Errors+s.failed
		sum, slowest = sum+s.sum, max(slowest, s.slowest)
	}
	if p.Done > 0 {
		p.MeanText, p.SlowestText = latency(sum/time.Duration(p.Done)), latency(slowest)
	}
	if p == (spark{}) {
		return nil
	}
	return &p
}

// barHeight has a logarithmic scale, the same one for all drivers, so that they can be compared: from 10 ms at the
// bottom to 100 s at the top. It is at least 1, so that the bar is visible.
func barHeight(d time.Duration) int {
	const least, most = 10 * time.Millisecond, 100 * time.Second
	part := math.Log(float64(max(d, 1))/float64(least)) / math.Log(float64(most)/float64(least))
	return max(1, min(sparkHeight, int(math.Round(part*sparkHeight))))
}

// latency writes about two digits: 850ms, 1.7s, 12s, 3m20s.
func latency(d time.Duration) string {
	unit := time.Millisecond
	for d >= 100*unit && unit < time.Second {
		unit *= 10
	}
	return registry.FormatDuration(d.Round(unit))
}
