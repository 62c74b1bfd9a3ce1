//go:build !race

package hub

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// heap returns the bytes in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// The race detector makes it ten times as long, and finds nothing in one goroutine: make test runs it without.
func TestStepsOfManyAttachesThatFailWithDifferentTextsTakeLittleMemory(t *testing.T) {
	for n, most := range map[int]int{10_000: 10_000_000, 100_000: 40_000_000} {
		tries := 150_000 / n
		before := heap()
		memory, all := newStepMemory(maxStepMemory), make([]*operation, n)
		for i := range all {
			all[i] = &operation{memory: memory, kind: status.Attach}
			all[i].at(status.StepCreated, "", time.Now())
			for try := range tries {
				all[i].failing(fmt.Sprintf("request %d/%d ", i, try))
			}
		}
		if got := heap() - before; got > most {
			t.Errorf("the steps of %d attaches take %d bytes, want at most %d", n, got, most)
		}
		if memory.bytes > maxStepMemory {
			t.Errorf("%d bytes are counted", memory.bytes)
		}
		first, last := all[0].steps(), all[n-1].steps()
		if len(first) != 1 || first[0].Kind != status.StepOmitted || !strings.Contains(first[0].What, fmt.Sprintf("of which %d failed", 2*tries)) {
			t.Errorf("the steps of the oldest attach are %+v", first)
		}
		if last[0].Kind != status.StepCreated {
			t.Errorf("the steps of the newest attach are %+v", last)
		}
		for _, o := range all {
			memory.release(o)
		}
		if memory.bytes != 0 || memory.ends.newer != &memory.ends {
			t.Errorf("%d bytes are counted when all have ended", memory.bytes)
		}
	}
}
