package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// idleGoroutines is how many goroutines a driver may cost that has nothing to do, those
	// of its lease and of gRPC included.
	idleGoroutines = 12
	// idleMemory is how much heap and stack it may cost.
	idleMemory = 512 << 10
)

func TestIdleDriverCostsFewGoroutinesAndLittleMemory(t *testing.T) {
	const few, more = 5, 20
	s := newScene(t, "idle")
	add := func(n int) {
		for range n {
			s.driver(fmt.Sprint(len(s.drivers)), "")
		}
	}
	add(few)
	s.startHub("--profiling", "--leader-election-lease-duration=15s", "--leader-election-renew-deadline=10s", "--leader-election-retry-period=5s")
	before := s.atRest()
	add(more)
	s.rewrite()
	after := s.atRest()

	goroutines := float64(after.Goroutines-before.Goroutines) / more
	memory := (after.Heap + after.Stacks - before.Heap - before.Stacks) / more
	t.Logf("an idle driver costs %.2f goroutines, %d KiB of heap and stacks, %d KiB of RSS, %.2f descriptors", goroutines, memory>>10,
		(after.RSS-before.RSS)/more>>10, float64(after.Descriptors-before.Descriptors)/more)
	if goroutines > idleGoroutines {
		t.Errorf("an idle driver costs %.2f goroutines, want at most %d:\n%s", goroutines, idleGoroutines, s.goroutinesOfMany(more))
	}
	if memory > idleMemory {
		t.Errorf("an idle driver costs %d bytes of heap and stacks, want at most %d", memory, idleMemory)
	}
}

// atRest waits until the hub works for all drivers, and returns what the hub costs when nothing is going on that will end.
func (s *scene) atRest() (least testbed.Vitals) {
	s.t.Helper()
	s.must(s.hub.WaitReady(s.ctx, len(s.drivers)))
	// What is only begun now and then, to renew a lease say, is not seen in every look.
	for i := range 5 {
		v, err := s.hub.Vitals(s.ctx)
		s.must(err)
		if i == 0 || v.Goroutines < least.Goroutines {
			least = v
		}
	}
	return least
}

// goroutinesOfMany returns where those goroutines are that there are at least so many of.
func (s *scene) goroutinesOfMany(n int) string {
	var many strings.Builder
	for of := range strings.SplitSeq(s.get("/debug/pprof/goroutine?debug=1"), "\n\n") {
		count, _, _ := strings.Cut(of, " ")
		if have, err := strconv.Atoi(count); err != nil || have < n {
			continue
		}
		many.WriteString(count)
		for _, function := range inStack.FindAllStringSubmatch(of, -1) {
			many.WriteString(" < " + function[1])
		}
		many.WriteString("\n")
	}
	return many.String()
}

// inStack is one function in the stack of a goroutine profile, without its folder.
var inStack = regexp.MustCompile(`(?m)^#\t0x[0-9a-f]+\t(?:.*/)?(\S+)\+0x`)
