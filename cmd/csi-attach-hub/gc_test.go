package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGOGCOfTheEnvironmentStays(t *testing.T) {
	t.Setenv("GOGC", "75")
	before := debug.SetGCPercent(75)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	followHeap()
	if got := debug.SetGCPercent(75); got != 75 {
		t.Errorf("GOGC is %d, want the 75 of the environment", got)
	}
}

func TestSmallHeapsMayHaveMoreGarbageThanLargeOnes(t *testing.T) {
	for used, want := range map[uint64]int{0: 350, 1 << 20: 350, 10 << 20: 140, 14 << 20: 100, 27 << 20: 50, 28 << 20: 50, 100 << 20: 50, 1 << 40: 50} {
		if got := gcPercentFor(used); got != want {
			t.Errorf("gcPercentFor(%d MiB) = %d, want %d", used>>20, got, want)
		}
	}
}

func TestGCPercentFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(gcPercent)
	followHeap()
	// The cleanups go on after the test: they do no harm, but the percentage is that of this program.
	t.Cleanup(func() { debug.SetGCPercent(before) })
	if got := gogc(); got <= gcPercent {
		t.Errorf("a small heap has GOGC %d, want more than %d", got, gcPercent)
	}
	large := make([]byte, 100<<20)
	if got := collectUntil(t, func(percent uint64) bool { return percent == gcPercent }); got != gcPercent {
		t.Errorf("a large heap has GOGC %d, want %d", got, gcPercent)
	}
	runtime.KeepAlive(large)
	if got := collectUntil(t, func(percent uint64) bool { return percent > gcPercent }); got <= gcPercent {
		t.Errorf("a heap that has become small has GOGC %d, want more than %d", got, gcPercent)
	}
}

// collectUntil collects garbage until GOGC is as wanted, for some seconds at most, and returns GOGC.
func collectUntil(t *testing.T, wanted func(percent uint64) bool) uint64 {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		if got := gogc(); wanted(got) || time.Now().After(deadline) {
			return got
		}
	}
}

func gogc() uint64 {
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(now)
	return now[0].Value.Uint64()
}
