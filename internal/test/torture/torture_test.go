package torture

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// options returns those of a short run with a hub.
func options(t *testing.T, race bool) Options {
	t.Helper()
	hub := os.Getenv("HUB") // allows to try a hub that does something wrong
	if hub == "" {
		var err error
		if hub, err = testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub", Race: race}); err != nil {
			t.Fatal(err)
		}
	}
	return Options{Seed: 429, Hub: hub, Dir: testbed.ShortTempDir(t), Drivers: 2}
}

// The long form is `make chaos SEED=429 FAULTS=1000`. In the short one this seed stops the API server,
// kills a hub, has a hostile driver and both takeovers.
func TestAFewDozenFaultsLoseNothing(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	o := options(t, true)
	o.Faults, o.Out = 60, &out
	report, err := Chaos(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("%s%s", &out, report)
	if !report.Held() {
		t.Errorf("%d things do not hold", len(report.Findings))
	}
	for _, kind := range []Kind{APIStop, HubKill, HubPause, DriverHostile, TakeoverStale, TakeoverPaused} {
		if report.Counts[kind] == 0 {
			t.Errorf("no %s: choose another seed", kind)
		}
	}
	if report.Faults < o.Faults || report.Calls == 0 {
		t.Errorf("%d faults, %d calls", report.Faults, report.Calls)
	}
}

// TestCrashAtEachWriteAndCallLosesNothingAndRepeatsNoRecordedCall kills a hub at each point of each scenario, with and
// without a watch that lags, if CRASHES is "all"; at those points with a text in their name, if it is that text. Else it does
// that at the points where most can be lost.
func TestCrashAtEachWriteAndCallLosesNothingAndRepeatsNoRecordedCall(t *testing.T) {
	t.Parallel()
	report := func(outcome *Outcome, err error) {
		t.Helper()
		for _, f := range outcome.Findings {
			t.Error(f)
		}
		if err != nil || t.Failed() {
			t.Fatalf("%v\n%s", err, strings.Join(outcome.History, "\n"))
		}
	}
	crashes, outcome, err := Points(t.Context(), options(t, false))
	report(outcome, err)
	lags := Lags()
	switch only := os.Getenv("CRASHES"); only {
	case "all":
	case "":
		crashes, lags = slices.DeleteFunc(crashes, func(c Crash) bool { return !c.IsDangerous() }), []Lag{{Resource: "volumeattachments", Late: true}}
	default:
		crashes = slices.DeleteFunc(crashes, func(c Crash) bool { return !strings.Contains(c.String(), only) })
	}
	for _, lag := range lags {
		began := time.Now()
		outcome, err := RunCrashes(t.Context(), options(t, false), crashes, lag)
		t.Logf("%d crashes, %s, in %v, missed %q", len(crashes), lag, time.Since(began).Round(time.Second), outcome.Missed)
		report(outcome, err)
		if len(outcome.Missed) > len(crashes)/10 {
			t.Errorf("%d of %d crashes miss their points", len(outcome.Missed), len(crashes))
		}
	}
}

func TestASoakGivesSamplesAndAVerdict(t *testing.T) {
	t.Parallel()
	r, err := Soak(t.Context(), SoakOptions{Options: options(t, false), Duration: 10 * time.Second, Every: 500 * ms, Volumes: 5, Latency: 100 * ms})
	if err != nil {
		t.Fatal(err)
	}
	first, last := r.Samples[0], r.Samples[len(r.Samples)-1]
	if len(r.Samples) < leastSamples || last.At < 10*time.Second || last.Attached <= first.Attached || last.Detached == 0 {
		t.Errorf("%d samples, the first %+v, the last %+v: want some of a run of 10 s with attaches and detaches", len(r.Samples), first, last)
	}
	for _, s := range r.Samples {
		if s.Goroutines == 0 || s.RSS == 0 || s.Heap == 0 || s.Descriptors == 0 {
			t.Fatalf("sample %+v: want no zeros", s)
		}
	}
	text := r.Text()
	for _, q := range quantities {
		if !strings.Contains(text, q.Name) {
			t.Errorf("%s is not in the report:\n%s", q.Name, text)
		}
	}
}
