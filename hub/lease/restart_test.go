package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
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

func TestAReplicaThatComesBackAfterACrashWaitsALeaseDurationAtMost(t *testing.T) {
	const wrong = 5 * time.Minute
	watched := false
	for name, c := range map[string]struct{ away, dead, survivor, most time.Duration }{
		"all clocks are right":         {2 * time.Minute, 0, 0, 5 * time.Second},
		"after 31 s":                   {31 * time.Second, 0, 0, 5 * time.Second},
		"after 40 s":                   {40 * time.Second, 0, 0, 5 * time.Second},
		"after 70 s":                   {70 * time.Second, 0, 0, 5 * time.Second},
		"its own is ahead":             {2 * time.Minute, -wrong, -wrong, 5 * time.Second},
		"its own is behind":            {2 * time.Minute, wrong, wrong, 16 * time.Second},
		"the dead's was ahead":         {2 * time.Minute, wrong, 0, 16 * time.Second},
		"the dead's was behind":        {2 * time.Minute, -wrong, 0, 5 * time.Second},
		"the survivor's is ahead":      {2 * time.Minute, 0, wrong, 5 * time.Second},
		"the survivor's is behind":     {2 * time.Minute, 0, -wrong, 16 * time.Second},
		"ahead and behind":             {2 * time.Minute, wrong, -wrong, 16 * time.Second},
		"the survivor's further ahead": {2 * time.Minute, -wrong, wrong, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			race.OneRow(t, &watched)
			inVirtualTime(t, func(w *world) {
				survivor, restarted := restart(w, c.away, c.dead, c.survivor)
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
