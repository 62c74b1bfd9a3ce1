package lease

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
)

// A replica is killed twice, and comes back with a new identity after it was away for longer
// than the lease duration. The Leases of its earlier identities are still there.
func restart(v *virtualReplicas, away time.Duration, skewOfDead, skewOfSurvivor time.Duration) {
	v.t.Helper()
	skewed := func(skew time.Duration) func(*virtualReplica) { return func(r *virtualReplica) { r.skew = skew } }
	survivor := v.start("survivor", skewed(skewOfSurvivor))
	var killed *virtualReplica
	for i := range 2 {
		killed = v.start(fmt.Sprintf("killed-%d", i), skewed(skewOfDead))
		time.Sleep(time.Minute)
		killed.kill()
		time.Sleep(away)
	}
	if away > time.Minute {
		v.shared(survivor)
	}
	v.longestGap() // of the crashes
	v.start("restarted")
}

func TestAReplicaThatComesBackAfterACrashLeavesNoDriverToItsDeadIdentities(t *testing.T) {
	for _, away := range []time.Duration{2 * time.Minute, 31 * time.Second, 40 * time.Second, 70 * time.Second} {
		t.Run(away.String(), func(t *testing.T) {
			inVirtualTime(t, func(v *virtualReplicas) {
				restart(v, away, 0, 0)
				time.Sleep(time.Minute)
				if gap := v.longestGap(); gap > 5*time.Second {
					t.Errorf("a driver had no server for %v, longer than a retry period", gap)
				}
				v.shared(&virtualReplica{identity: "survivor"}, &virtualReplica{identity: "restarted"})
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
			inVirtualTime(t, func(v *virtualReplicas) {
				restart(v, 2*time.Minute, c.dead, c.survivor)
				time.Sleep(time.Minute)
				if gap := v.longestGap(); gap > c.most {
					t.Errorf("a driver had no server for %v, longer than %v", gap, c.most)
				}
				v.shared(&virtualReplica{identity: "survivor"}, &virtualReplica{identity: "restarted"})
			})
		})
	}
}

func TestADeadReplicaStaysDeadWhenTheWatchOfLeasesBreaks(t *testing.T) {
	inVirtualTime(t, func(v *virtualReplicas) {
		survivor, other := v.start("survivor"), v.start("killed")
		time.Sleep(time.Minute)
		other.kill()
		time.Sleep(2 * time.Minute)
		v.shared(survivor)
		v.longestGap()
		before := survivor.termsBegun()
		survivor.setBlind(true)
		time.Sleep(10 * time.Second)
		survivor.setBlind(false)
		time.Sleep(time.Minute)
		if gap, n := v.longestGap(), survivor.termsBegun()-before; gap > 0 || n > 0 {
			t.Errorf("%d drivers were taken again, and had no server for up to %v", n, gap)
		}
	})
}

func TestADriverIsNotHandedOverToAReplicaThatDoesNotKnowTheOthersYet(t *testing.T) {
	inVirtualTime(t, func(v *virtualReplicas) {
		survivor := v.start("survivor")
		time.Sleep(time.Minute)
		v.shared(survivor)
		started := v.start("started", func(r *virtualReplica) { r.blind = true })
		time.Sleep(10 * time.Second)
		started.setBlind(false)
		time.Sleep(time.Minute)
		if gap := v.longestGap(); gap > 5*time.Second {
			t.Errorf("a driver had no server for %v, longer than a retry period", gap)
		}
		v.shared(survivor, started)
	})
}

func TestAfterAnOutageEachReplicaTakesItsOwnDriversAgain(t *testing.T) {
	inVirtualTime(t, func(v *virtualReplicas) {
		replicas := []*virtualReplica{v.start("a"), v.start("b"), v.start("c")}
		time.Sleep(time.Minute)
		v.shared(replicas...)
		taken := 0
		for _, r := range replicas {
			taken -= r.termsBegun()
		}
		v.api.Intercept(func(fakekube.Request) int { return http.StatusServiceUnavailable })
		time.Sleep(time.Minute) // all leases expire, and all replicas look dead
		v.api.Intercept(nil)
		time.Sleep(time.Minute)
		v.shared(replicas...)
		for _, r := range replicas {
			taken += r.termsBegun()
		}
		if taken != len(v.drivers) {
			t.Errorf("%d drivers were taken %d times", len(v.drivers), taken)
		}
	})
}
