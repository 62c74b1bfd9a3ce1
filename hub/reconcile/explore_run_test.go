package reconcile

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
)

// TestExploreVolumes enumerates the states of small worlds around the real core. EXPLORE=10m explores for so long: a world
// gets the same share of what is left as each world after it, and a world that is complete leaves the rest of its share to
// those.
func TestExploreVolumes(t *testing.T) {
	var long time.Duration
	if text := os.Getenv("EXPLORE"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	states, complete, cut := 0, 0, 0
	short := 2500
	if race.Detector {
		short = 100 // each takes several times as long
	}
	for i, c := range exploredConfigs {
		t.Run(c.Name, func(t *testing.T) {
			o := explore.Options{MaxStates: short}
			if long > 0 {
				left := max(long-time.Since(began), time.Second)
				o = explore.Options{For: left / time.Duration(len(exploredConfigs)-i), Progress: os.Stderr}
			}
			m := newVolumeModel(t, c)
			report, err := explore.Run(context.Background(), m, o)
			must(t, err)
			t.Logf("%v\nreplicas: %d values, %d lives", report, len(m.replicas.known), m.replicas.lives)
			if report.Counterexample != nil {
				t.Error(report.Counterexample)
			}
			states += report.States
			if report.Complete() {
				complete++
			} else {
				cut++
			}
		})
		runtime.GC() // the replicas of the world are not needed any more
	}
	t.Logf("total: %d states, %d worlds complete, %d worlds cut, %.0f s", states, complete, cut, time.Since(began).Seconds())
}
