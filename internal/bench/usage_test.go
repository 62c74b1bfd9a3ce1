package bench

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestPeakIsMeasuredAnew(t *testing.T) {
	peak := func() float64 {
		t.Helper()
		u, err := processUsage(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return u.peak
	}
	const size = 256 << 20
	much := make([]byte, size)
	for i := 0; i < len(much); i += os.Getpagesize() {
		much[i] = 1
	}
	before := peak()
	much = nil
	debug.FreeOSMemory()
	if err := resetPeak(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if after := peak(); after > before-size/2 {
		t.Errorf("at most %.0f bytes after a reset, %.0f before: want the memory that was freed to count no more", after, before)
	}
}
