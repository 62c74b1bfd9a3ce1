package main

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == baselineCommand { // this program is the baseline too
		main()
		return
	}
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// measureTiny measures a small variant of a case, and fails if it misses a target that is a count.
func measureTiny(t *testing.T, name string, change func(*Case)) samples {
	t.Helper()
	t.Parallel()
	o := options{progress: t.Output()}
	var err error
	for command, path := range map[string]*string{"./cmd/csi-attach-hub": &o.hub, "./cmd/csi-attach-proxy": &o.proxy} {
		if *path, err = testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: command}); err != nil {
			t.Fatal(err)
		}
	}
	if o.self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	c := cases()[slices.Index(caseNames(), name)]
	c.Drivers, c.Nodes, c.Volumes, c.Rounds, c.Bursts = 2, 2, 10, 1, 1
	c.Each = min(c.Each, 3)
	change(&c)
	r, err := o.measure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range c.Targets {
		if v, measured := target.verdict(r.Samples); !measured {
			t.Errorf("%s was not measured", target.figure)
		} else if got, _ := r.Samples.median(hubName, target.figure); target.compare == "exactly" && !target.met(got) {
			t.Error(v)
		}
	}
	t.Log(report{name: r}.summary())
	return r.Samples
}

// checkMeasured checks that the figures of a competitor are above 0.
func checkMeasured(t *testing.T, s samples, competitor string, figures ...Figure) {
	t.Helper()
	for _, f := range figures {
		if got, _ := s.median(competitor, f); got <= 0 {
			t.Errorf("%s of %s is %v, want more than 0", f, competitor, got)
		}
	}
}

// What is counted, and not timed, is the same in each run: it is what the hub promises.
func TestHubNeedsNoMoreWritesAndCallsThanTheBaseline(t *testing.T) {
	got := measureTiny(t, "10x50", func(c *Case) { c.Volumes, c.Each = 100, 20 }) // enough for a tick of CPU time
	for _, f := range []Figure{AttachWrites, DetachWrites, AttachCalls, DetachCalls, Reads} {
		hub, _ := got.median(hubName, f)
		if baseline, measured := got.median(baselineName, f); !measured || baseline != hub {
			t.Errorf("%s of the baseline: %v, of the hub %v", f, baseline, hub)
		}
	}
	checkMeasured(t, got, baselineName, AttachRate, CPU, PlaneCPU, ResidentIdle)
}

// The hub reaches each driver through a proxy with mutual TLS, and makes no call more for it.
func TestHubAttachesThroughProxies(t *testing.T) {
	checkMeasured(t, measureTiny(t, "proxies", func(*Case) {}), hubName, ResidentProxy)
}

func TestAnotherReplicaOfTheHubFinishesABurst(t *testing.T) {
	got := measureTiny(t, "failover", func(c *Case) {
		c.Drivers, c.Volumes, c.Each = 4, 100, 25 // of fewer than four drivers one replica may get all
		c.Workers = 1                             // a burst takes a second: busy machines see its middle
	})
	checkMeasured(t, got, hubName, CrashLast, ExitLast)
	if calls, _ := got.median(hubName, CrashCalls); calls < 1 {
		t.Errorf("%v calls per attach after SIGKILL, want at least 1", calls)
	}
}

func TestRollingUpdateOfTheHubLosesAndRepeatsNothing(t *testing.T) {
	checkMeasured(t, measureTiny(t, "rollout", func(c *Case) { c.Drivers, c.Volumes = 4, 50 }), hubName, RolloutGap)
}

func TestPodsGetTheirVolumesThroughKubeControllerManager(t *testing.T) {
	got := measureTiny(t, "pods-tuned", func(c *Case) { c.alone = true })
	checkMeasured(t, got, hubName, PodRate, PodP50, PodRequestP50, PodPublishP50, PodDetachRate, ManagerShare)
	if share, _ := got.median(hubName, ManagerShare); share >= 1 {
		t.Errorf("share of kube-controller-manager %v, want less than 1", share)
	}
}

// The turn fails unless requests of the tenant wait for seats of workload-low at the beginning and at the end.
// On a machine that is busy with other tests the hub may lose leases for other reasons.
func TestHubAttachesWhileANoisyTenantSaturatesWorkloadLow(t *testing.T) {
	got := measureTiny(t, "noisy-tenant", func(c *Case) { c.Targets = []target{atMost(LeasesLost, 0)} })
	checkMeasured(t, got, hubName, QuietP99, TenantP99)
}

func TestAHostileDriverIsMeasuredBesideTheOthers(t *testing.T) {
	checkMeasured(t, measureTiny(t, "one-hostile", func(*Case) {}), hubName, OthersP50, OthersP50Hostile, ResidentPeak)
}

func TestALargeClusterIsMadeAndItsAPIServerRestarted(t *testing.T) {
	got := measureTiny(t, "scale", func(c *Case) {
		tiny := &scale{nodes: 3, attached: 4, burst: 2, prepared: Figures{}}
		c.prepare, c.turn = tiny.prepare, tiny.turn
	})
	checkMeasured(t, got, hubName, Ready, AttachRate, RelistRecovered, RelistPeak)
}

func TestIdleDriversAreMeasured(t *testing.T) {
	got := measureTiny(t, "idle", func(c *Case) { c.Drivers = 2 * fewDrivers })
	checkMeasured(t, got, hubName, FleetReady, LeaseWrites, GoroutinesPerDriver, ResidentMany)
	if g, _ := got.median(hubName, GoroutinesPerDriver); g > 12 {
		t.Errorf("a driver without work has %v goroutines, want at most 12", g)
	}
}

func TestGapIsTheLongestTimeBetweenTheBeginsOfCalls(t *testing.T) {
	began := time.Now()
	call := func(m fakecsi.Method, after time.Duration) fakecsi.Call {
		return fakecsi.Call{Method: m, Start: began.Add(after * time.Second)}
	}
	calls := []fakecsi.Call{ // in the order of their ends
		call(fakecsi.ControllerPublishVolume, -9),
		call(fakecsi.ControllerPublishVolume, 2),
		call(fakecsi.Probe, 4),
		call(fakecsi.ControllerUnpublishVolume, 7),
		call(fakecsi.ControllerPublishVolume, 3),
	}
	for since, want := range map[time.Duration]time.Duration{0: 4, 4: 3, 8: 0} {
		if got := gap(calls, began.Add(since*time.Second)); got != want*time.Second {
			t.Errorf("gap %v after %d s, want %d s", got, since, want)
		}
	}
}
