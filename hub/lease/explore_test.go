package lease

import (
	"os"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
)

// exploreFor is how long each large world is explored: EXPLORE is the time of all worlds. Without it, only the small worlds are
// explored. Those are always explored to their end.
func exploreFor(t *testing.T, worlds int) (each time.Duration, short bool) {
	t.Helper()
	race.Skip(t, "one goroutine explores values")
	text := os.Getenv("EXPLORE")
	if text == "" {
		return 0, true
	}
	all, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("EXPLORE: %v", err)
	}
	return all / time.Duration(worlds), false
}

const (
	coarse = 200 * time.Millisecond // five ticks in a lease
	fine   = 100 * time.Millisecond
)

// The drift is below the largest that TestLargestDrift finds. Several worlds say more than one with all faults, whose
// states nobody could enumerate.
var leaseWorlds = map[string]struct {
	model leaseModel
	large bool // only with EXPLORE: the first few states say nothing
}{
	"pauses, lost and late requests, drift":   {leaseModel{tick: coarse, timeout: 1, drift: 0.012, quick: true}, false},
	"and a crash":                             {leaseModel{tick: coarse, timeout: 1, drift: 0.012, quick: true, crashes: 1}, true},
	"csi-attacher takes over":                 {leaseModel{tick: coarse, timeout: 1, drift: 0.012, quick: true, attacher: true}, true},
	"frozen machines":                         {leaseModel{tick: coarse, timeout: 1, drift: 0.012, quick: true, stops: true}, true},
	"wall clocks are set":                     {leaseModel{tick: coarse, timeout: 1, drift: 0.012, quick: true, jumps: true}, true},
	"both hubs are stopped at will":           {leaseModel{tick: coarse, timeout: 1, drift: 0.012}, true},
	"finer steps":                             {leaseModel{tick: fine, timeout: 3, drift: 0.012, quick: true}, true},
	"bounded time":                            {leaseModel{tick: fine, timeout: 6, quick: true, prompt: true, crashes: 1}, false},
	"bounded time beside csi-attacher":        {leaseModel{tick: fine, timeout: 6, quick: true, prompt: true, crashes: 1, attacher: true}, false},
	"outages and calls longer than a lease":   {leaseModel{tick: fine, timeout: 25, quick: true, prompt: true, outages: true}, false},
	"outages, and frozen machines":            {leaseModel{tick: coarse, timeout: 1, drift: 0.012, quick: true, prompt: true, outages: true, stops: true}, false},
	"outages, and wall clocks are set":        {leaseModel{tick: coarse, timeout: 1, drift: 0.012, quick: true, prompt: true, outages: true, jumps: true}, false},
	"outages beside csi-attacher, long calls": {leaseModel{tick: fine, timeout: 25, quick: true, prompt: true, outages: true, attacher: true}, false},
}

func TestExploreLease(t *testing.T) {
	each, short := exploreFor(t, len(leaseWorlds))
	for name, w := range leaseWorlds {
		t.Run(name, func(t *testing.T) {
			if short && w.large {
				t.Skip("only with EXPLORE=10m, say")
			}
			limit := each
			if !w.large {
				limit = 0 // to its end
			}
			r, err := explore.Run(t.Context(), w.model, explore.Options{For: limit})
			must(t, err)
			if r.Counterexample != nil || !w.large && !r.Complete() {
				t.Error(r)
			}
			t.Log(r)
		})
	}
}

// Each assumption of package doc is needed: without it two processes may act at once.
func TestExploreLeaseNeedsItsAssumptions(t *testing.T) {
	exploreFor(t, 1)
	for name, m := range map[string]leaseModel{
		"rates of clocks within bounds":               {tick: coarse, timeout: 1, drift: 0.07, quick: true},
		"one clock counts while a machine is frozen":  {tick: coarse, timeout: 1, quick: true, noClock: true},
		"a call fits into a lease, or nothing pauses": {tick: coarse, timeout: 25, quick: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := explore.Run(t.Context(), m, explore.Options{})
			must(t, err)
			if r.Counterexample == nil || r.Counterexample.Kind != explore.StateWrong {
				t.Errorf("no violation was found:\n%v", r)
			}
			t.Log(r)
		})
	}
}

// A call that Confirm has allowed ends before any other process may take the Lease, as long as the rates of the clocks
// of the holder, of the driver and of who waits differ by less than half of the margin: 1/40 of the lease.
func TestLargestDrift(t *testing.T) {
	race.Skip(t, "this is arithmetic")
	for _, duration := range []time.Duration{2 * time.Second, 15 * time.Second, time.Minute} {
		retry := duration / 3
		term := &Term{duration: duration, retry: retry}
		overlaps := func(drift float64) bool {
			for age := time.Duration(0); age < 2*duration; age += duration / 2000 {
				for longest := time.Duration(0); fits(longest, duration, retry); longest += duration / 50 {
					measured := time.Duration(float64(age) * (1 - drift))
					if term.confirmAt(instant{monotonic: term.renewed.monotonic.Add(measured)}, longest) != nil {
						continue
					}
					if float64(age)+float64(longest)/(1-drift) > float64(duration)/(1+drift) {
						return true
					}
				}
			}
			return false
		}
		safe, unsafe := 0.0, 0.5
		for unsafe-safe > 1e-5 {
			if middle := (safe + unsafe) / 2; overlaps(middle) {
				unsafe = middle
			} else {
				safe = middle
			}
		}
		t.Logf("lease of %v: each clock may drift by %.2f %%", duration, 100*safe)
		if safe < 0.0125 || safe > 0.0130 {
			t.Errorf("lease of %v: each clock may drift by %.2f %%, package doc says 1.25 %%", duration, 100*safe)
		}
	}
}
