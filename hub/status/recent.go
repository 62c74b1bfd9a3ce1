package status

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

const (
	// recentSlots times slotLength is the time that the page shows: a quarter of an hour.
	recentSlots = 60
	slotLength  = 15 * time.Second

	sparkStep   = 2  // width of a slot in the picture
	sparkHeight = 24 // of the part for latencies
	sparkFeet   = 28 // bottom of the part below, for failed tries
)

// recent counts how a driver's operations of the last quarter of an hour ended, in slots of equal
// length. Its size never changes.
type recent struct {
	mu    sync.Mutex
	slots [recentSlots]slot // index: the number of the slot modulo recentSlots; guarded by mu
}

// slot counts what ended in one slot of time.
type slot struct {
	number  int64 // of the slot since 1970; the other fields are about this slot only
	done    int
	failed  int
	sum     time.Duration // of what the done operations took, each from its event
	slowest time.Duration // of the done operations
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
	var mean, slowest, failed strings.Builder
	var total slot
	first := slotNumber(now) - recentSlots + 1
	for i := range int64(recentSlots) {
		s := r.slots[(first+i)%recentSlots]
		if s.number != first+i {
			continue
		}
		bar := func(path *strings.Builder, bottom, height int) {
			fmt.Fprintf(path, "M%d %dv-%d", sparkStep*i+sparkStep/2, bottom, height)
		}
		if s.done > 0 {
			bar(&mean, sparkHeight, barHeight(s.sum/time.Duration(s.done)))
			bar(&slowest, sparkHeight, barHeight(s.slowest))
		}
		if s.failed > 0 {
			bar(&failed, sparkFeet, sparkFeet-sparkHeight-1)
		}
		total.done += s.done
		total.failed += s.failed
		total.sum += s.sum
		total.slowest = max(total.slowest, s.slowest)
	}
	if total.done+total.failed == 0 {
		return nil
	}
	p := &spark{Mean: mean.String(), Slowest: slowest.String(), Failed: failed.String(), Done: total.done, Errors: total.failed}
	if total.done > 0 {
		p.MeanText, p.SlowestText = latency(total.sum/time.Duration(total.done)), latency(total.slowest)
	}
	return p
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
	return Duration(d.Round(unit)).String()
}
