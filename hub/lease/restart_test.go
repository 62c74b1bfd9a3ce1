package lease

import (
	"fmt"
	"testing"
	"time"
)

// A replica is killed twice, and comes back with a new identity after it was away for longer
// than the lease duration. The Leases of its earlier identities are still there.
func restart(w *world, away time.Duration, skewOfDead, skewOfSurvivor time.Duration) (survivor, restarted *replica) {
	w.t.Helper()
	skewed := func(skew time.Duration) func(*replica) { return func(r *replica) { r.skew = skew } }
	survivor = w.start("survivor", skewed(skewOfSurvivor))
	var killed *replica
	for i := range 2 {
		killed = w.start(fmt.Sprintf("killed-%d", i), skewed(skewOfDead))
		time.Sleep(time.Minute)
		killed.kill()
		time.Sleep(away)
	}
	if away > time.Minute {
		w.servers.are(w.drivers, survivor)
	}
	w.servers.longestGap() // of the crashes
	return survivor, w.start("restarted")
}

func TestAReplicaThatComesBackAfterACrashLeavesNoDriverToItsDeadIdentities(t *testing.T) {
	for _, away := range []time.Duration{2 * time.Minute, 31 * time.Second, 40 * time.Second, 70 * time.Second} {
		t.Run(away.String(), func(t *testing.T) {
			inVirtualTime(t, func(w *world) {
				survivor, restarted := restart(w, away, 0, 0)
				time.Sleep(time.Minute)
				if gap := w.servers.longestGap(); gap > 5*time.Second {
					t.Errorf("a driver had no server for %v, longer than a retry period", gap)
				}
				w.servers.are(w.drivers, survivor, restarted)
			})
		})
	}
}

func TestAReplicaThatComesBackAmongWrongClocksWaitsALeaseDurationAtMost(t *testing.T) {
	const wrong = 5 * time.Minute
	for name, c := range map[string]struct{ dead, survivor, most time.Duration }{
		"its own is ahead":             {-wrong, -wrong, 5 * time.Second},
		"its own is behind":            {wrong, wrong, 16 * time.Second},
		"the dead's was ahead":         {wrong, 0, 16 * time.Second},
		"the dead's was behind":        {-wrong, 0, 5 * time.Second},
		"the survivor's is ahead":      {0, wrong, 5 * time.Second},
		"the survivor's is behind":     {0, -wrong, 16 * time.Second},
		"ahead and behind":             {wrong, -wrong, 16 * time.Second},
		"the survivor's further ahead": {-wrong, wrong, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(w *world) {
				survivor, restarted := restart(w, 2*time.Minute, c.dead, c.survivor)
				time.Sleep(time.Minute)
				if gap := w.servers.longestGap(); gap > c.most {
					t.Errorf("a driver had no server for %v, longer than %v", gap, c.most)
				}
				w.servers.are(w.drivers, survivor, restarted)
			})
		})
	}
}

func TestADeadReplicaStaysDeadWhenTheWatchOfLeasesBreaks(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		survivor, other := w.start("survivor"), w.start("killed")
		time.Sleep(time.Minute)
		other.kill()
		time.Sleep(2 * time.Minute)
		w.servers.are(w.drivers, survivor)
		w.servers.longestGap()
		before := survivor.termsBegun()
		survivor.setBlind(true)
		time.Sleep(10 * time.Second)
		survivor.setBlind(false)
		time.Sleep(time.Minute)
		if gap, n := w.servers.longestGap(), survivor.termsBegun()-before; gap > 0 || n > 0 {
			t.Errorf("%d drivers were taken again, and had no server for up to %v", n, gap)
		}
	})
}

func TestADriverIsNotHandedOverToAReplicaThatDoesNotKnowTheOthersYet(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		survivor := w.start("survivor")
		time.Sleep(time.Minute)
		w.servers.are(w.drivers, survivor)
		started := w.start("started", func(r *replica) { r.blind.Store(true) })
		time.Sleep(10 * time.Second)
		started.setBlind(false)
		time.Sleep(time.Minute)
		if gap := w.servers.longestGap(); gap > 5*time.Second {
			t.Errorf("a driver had no server for %v, longer than a retry period", gap)
		}
		w.servers.are(w.drivers, survivor, started)
	})
}

func TestAfterAnOutageEachReplicaTakesItsOwnDriversAgain(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		replicas := []*replica{w.start("a"), w.start("b"), w.start("c")}
		time.Sleep(time.Minute)
		w.servers.are(w.drivers, replicas...)
		taken := 0
		for _, r := range replicas {
			taken -= r.termsBegun()
			r.cutOff()
		}
		time.Sleep(time.Minute) // all leases expire, and all replicas look dead
		for _, r := range replicas {
			r.cut.Store(false)
		}
		time.Sleep(time.Minute)
		w.servers.are(w.drivers, replicas...)
		for _, r := range replicas {
			taken += r.termsBegun()
		}
		if taken != len(w.drivers) {
			t.Errorf("%d drivers were taken %d times", len(w.drivers), taken)
		}
	})
}
