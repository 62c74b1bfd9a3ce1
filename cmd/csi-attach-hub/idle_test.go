package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

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
	s := newScene(t, "idle")
	drivers := "drivers:\n"
	serve := func(from, to int) {
		for i := from; i < to; i++ {
			driver, _ := s.serve(fmt.Sprint(i), filepath.Join(s.dir, fmt.Sprint(i)))
			drivers += fmt.Sprintf("  - {name: %s, endpoint: \"unix://%s\"}\n", driver, filepath.Join(s.dir, fmt.Sprint(i)))
		}
		s.configure("%s", drivers)
	}
	serve(0, 10)
	url := s.startVisibleHub("--profiling", "--leader-election-lease-duration=15s", "--leader-election-renew-deadline=10s", "--leader-election-retry-period=5s")
	few := s.atRest(url, 10)
	serve(10, 110)
	s.rewrite()
	many := s.atRest(url, 110)

	goroutines := float64(many.Goroutines-few.Goroutines) / 100
	memory := (many.Heap + many.Stacks - few.Heap - few.Stacks) / 100
	t.Logf("an idle driver costs %.2f goroutines, %d KiB of heap, %d KiB of stacks, %d KiB of RSS, %.2f descriptors", goroutines,
		(many.Heap-few.Heap)/100>>10, (many.Stacks-few.Stacks)/100>>10, (many.RSS-few.RSS)/100>>10, float64(many.Descriptors-few.Descriptors)/100)
	if goroutines > idleGoroutines {
		t.Errorf("an idle driver costs %.2f goroutines, want at most %d:\n%s", goroutines, idleGoroutines, s.goroutinesOfMany(url, 100))
	}
	if memory > idleMemory {
		t.Errorf("an idle driver costs %d bytes of heap and stacks, want at most %d", memory, idleMemory)
	}
}

// atRest waits until so many drivers are worked for, and returns what the hub costs when
// nothing is going on that will end.
func (s *scene) atRest(url string, drivers int) testbed.Vitals {
	s.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	least := testbed.Vitals{}
	for rested := 0; rested < 5; {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("%d drivers were never all at work", drivers)
		}
		if s.working(url) < drivers {
			continue
		}
		v, err := testbed.ReadVitals(s.ctx, url)
		if err != nil {
			s.t.Fatal(err)
		}
		// What is only begun now and then, to renew a lease say, is not seen in every look.
		if rested++; rested == 1 || v.Goroutines < least.Goroutines {
			least = v
		}
	}
	return least
}

// working counts the drivers that are connected and whose lease the hub has.
func (s *scene) working(url string) (n int) {
	s.t.Helper()
	var answer struct {
		Drivers []struct {
			Up    bool
			Lease struct{ Mine bool }
		}
	}
	if err := json.Unmarshal([]byte(s.text(url+"/api/v1/drivers")), &answer); err != nil {
		s.t.Fatal(err)
	}
	for _, d := range answer.Drivers {
		if d.Up && d.Lease.Mine {
			n++
		}
	}
	return n
}

// goroutinesOfMany returns where those goroutines are that there are at least so many of.
func (s *scene) goroutinesOfMany(url string, n int) string {
	var many strings.Builder
	for of := range strings.SplitSeq(s.text(url+"/debug/pprof/goroutine?debug=1"), "\n\n") {
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

func (s *scene) text(url string) string {
	s.t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(body)
}
