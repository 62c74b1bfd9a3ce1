package main

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const shortLease = 3 * time.Second // as shortLeases say

// slow calls are in flight at any time, and may take longer than what is left of a lease.
var slow = fakecsi.Latency{Base: 200 * time.Millisecond, Jitter: 1000 * time.Millisecond}

func TestReplicaThatIsCutOffStopsBeforeAnotherTakesOver(t *testing.T) {
	t.Parallel()
	s := newScene(t, "cutoff")
	gate, err := testbed.NewGate(s.plane)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	if err := gate.WriteKubeconfig(s.plane, kubeconfig); err != nil {
		t.Fatal(err)
	}
	r := newReplicas(s, 6, slow)
	s.config.WriteString("defaults: {timeout: 2s, retry: {max: 2s}}\n")
	far, near := r.start(kubeconfig), r.start(s.plane.Kubeconfig())
	load := s.churn(4, 1)
	load.each("begins", func(c *churn) error { return c.WaitCycles(s.ctx, 2) })
	before, _ := r.shared(2)

	gate.Shut()
	shut := time.Now()
	after, _ := r.await("one replica holding all", func(h holding) bool {
		return len(h.loads()) == 1 && len(h.holders) == len(s.drivers)
	})
	moved := after.moved(before)
	for _, driver := range moved {
		r.checkNothingOutlived(driver, after.acquired[driver])
	}
	served := r.servedAgain(after, moved)
	t.Logf("cut off: %s, then %s, all drivers called after %v", before, after, served.Sub(shut).Round(time.Millisecond))
	load.each("goes on without it", func(c *churn) error { return c.WaitCycles(s.ctx, 2) })

	gate.Open()
	back, _ := r.shared(2)
	t.Logf("back: %s", back)
	s.checkExit(near)
	alone, _ := r.await("the one that was cut off holding all", func(h holding) bool {
		return len(h.loads()) == 1 && len(h.holders) == len(s.drivers)
	})
	for _, driver := range moved {
		if alone.holders[driver] != before.holders[driver] {
			t.Errorf("%s is held by %s, want %s", driver, alone.holders[driver], before.holders[driver])
		}
	}
	load.each("goes on with it", func(c *churn) error { return c.WaitCycles(s.ctx, 2) })
	load.stop()
	t.Logf("%d cycles, %d calls", load.cycles(), r.checkBooks())
	s.checkExit(far)
}

// checkNothingOutlived reports calls that had begun before the lease was taken, and had not
// ended then.
func (r *replicas) checkNothingOutlived(driver string, taken time.Time) {
	r.t.Helper()
	b := r.backends[driver].Books()
	for _, c := range slices.Concat(b.Calls, b.Running) {
		if c.Volume != "" && c.Start.Before(taken) && (c.End.IsZero() || c.End.After(taken)) {
			r.t.Errorf("%s: the lease was taken at %s, %s of %s went on from %s to %s", driver, taken.Format(time.StampMicro),
				c.Method, c.Volume, c.Start.Format(time.StampMicro), c.End.Format(time.StampMicro))
		}
	}
}

func TestWorkStopsWhileTheAPIServerIsAwayAndThenGoesOn(t *testing.T) {
	t.Parallel()
	s := newSceneOn(t, "away", testbed.OwnControlPlane(t, testbed.ControlPlaneOptions{}))
	r := newReplicas(s, 4, slow)
	s.config.WriteString("defaults: {timeout: 2s, retry: {max: 2s}}\n")
	hubs := []*testbed.Process{r.start(s.plane.Kubeconfig()), r.start(s.plane.Kubeconfig())}
	load := s.churn(5, 1)
	load.each("begins", func(c *churn) error { return c.WaitCycles(s.ctx, 2) })
	r.shared(2)

	if err := s.plane.StopAPIServer(s.ctx); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	for driver, backend := range r.backends {
		err := backend.Wait(s.ctx, func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 0 })
		if err != nil {
			t.Fatalf("%s: calls do not end: %v", driver, err)
		}
	}
	sleepFor(s.ctx, time.Until(stopped.Add(shortLease+2*time.Second))) // every lease has expired
	starting := time.Now()
	if err := s.plane.StartAgain(s.ctx); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	load.each("goes on", func(c *churn) error { return c.WaitCycles(s.ctx, 2) })
	t.Logf("away for %v, then going on within %v", started.Sub(stopped).Round(time.Millisecond), time.Since(started).Round(time.Millisecond))
	for driver, backend := range r.backends {
		for _, c := range backend.Books().Calls {
			if c.Volume != "" && c.Start.After(stopped.Add(shortLease)) && c.Start.Before(starting) { // it serves before it is ready
				t.Errorf("%s: %s of %s began %v after the API server had stopped", driver, c.Method, c.Volume, c.Start.Sub(stopped))
			}
		}
	}
	load.stop()
	t.Logf("%d cycles, %d calls", load.cycles(), r.checkBooks())
	for _, hub := range hubs {
		s.checkExit(hub)
	}
}
