package torture

import (
	"io"
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
	return Options{Seed: 2032, Hub: hub, Dir: testbed.ShortTempDir(t), Drivers: 2, Out: io.Discard}
}

// The long form is `make chaos SEED=2032 FAULTS=1000`. In the short one this seed stops the API server,
// kills and pauses a hub, also at the end of its leases.
func TestTwoDozenFaultsLoseNothing(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	o := options(t, true)
	o.Faults, o.Out = 24, &out
	report, err := Chaos(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("%s%s", &out, report)
	if !report.Held() {
		t.Errorf("%d things do not hold", len(report.Findings))
	}
	for _, kind := range []Kind{APIStop, APISilent, HubKill, HubPause, HubPausedLate} {
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
	crashes, lags := Points(), Lags
	switch only := os.Getenv("CRASHES"); only {
	case "all":
	case "":
		crashes, lags = slices.DeleteFunc(crashes, func(c Crash) bool { return !c.IsDangerous() }), []Lag{{Resource: "volumeattachments", Late: true}}
	default:
		crashes = slices.DeleteFunc(crashes, func(c Crash) bool { return !strings.Contains(c.String(), only) })
		if len(crashes) == 0 {
			t.Fatalf("no point has %q in its name", only)
		}
	}
	for _, lag := range lags {
		began := time.Now()
		outcome, err := RunCrashes(t.Context(), options(t, false), crashes, lag)
		t.Logf("%d crashes, lag %+v, in %v, missed %q", len(crashes), lag, time.Since(began).Round(time.Second), outcome.Missed)
		report(outcome, err)
		if len(outcome.Missed) > len(crashes)/10 {
			t.Errorf("%d of %d crashes miss their points", len(outcome.Missed), len(crashes))
		}
	}
}
