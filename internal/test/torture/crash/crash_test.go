package crash_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture/crash"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// hubBinary allows to try a hub that does something wrong.
var hubBinary = flag.String("hub", "", "binary of csi-attach-hub; empty: build it")

const (
	// batchSize is how many cases share two processes, inParallel how many batches run at once.
	batchSize  = 40
	inParallel = 3
	// batchTimeout bounds one batch.
	batchTimeout = 4 * time.Minute
)

func hub(t *testing.T) string {
	t.Helper()
	if *hubBinary != "" {
		return *hubBinary
	}
	path, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// runBatches runs batches and reports their findings. It returns the results, which are in no order.
func runBatches(t *testing.T, batches []crash.Batch) (results []crash.Result) {
	t.Helper()
	binary, plane := hub(t), testbed.Shared(t)
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(inParallel)
	for _, b := range batches {
		b.Hub, b.Plane, b.Dir = binary, plane, testbed.ShortTempDir(t)
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), batchTimeout)
			defer cancel()
			began := time.Now()
			rs, err := b.Run(ctx)
			t.Logf("batch %s: %d cases, %s: %v", b.Name, len(b.Cases), b.Lag, time.Since(began).Round(100*time.Millisecond))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range rs {
				for _, f := range r.Findings {
					t.Errorf("%s, %s: %s", r.Case, b.Lag, f)
				}
			}
			results = append(results, rs...)
			return nil
		})
	}
	_ = group.Wait() // errors are reported where they happen
	return results
}

// enumerate returns a case for each point of each scenario: it runs the scenarios without a crash, and counts.
func enumerate(t *testing.T) (cases []crash.Case) {
	t.Helper()
	ends := map[crash.Ending]crash.Batch{}
	for _, s := range crash.Scenarios() {
		b := ends[s.Ending]
		b.Name, b.Cases = fmt.Sprintf("whole%d", s.Ending), append(b.Cases, crash.Case{Scenario: s})
		ends[s.Ending] = b
	}
	var batches []crash.Batch
	for _, b := range ends {
		batches = append(batches, b)
	}
	results := runBatches(t, batches)
	slices.SortFunc(results, func(a, b crash.Result) int { return strings.Compare(a.Case.Scenario.Name, b.Case.Scenario.Name) })
	checkSteps(t, results)
	for _, r := range results {
		t.Logf("%s: %q", r.Case, r.Steps)
		for _, p := range crash.Points(r.Steps) {
			cases = append(cases, crash.Case{Scenario: r.Case.Scenario, Point: &p, Once: r.Once})
		}
	}
	return cases
}

// batchesOf puts cases that may share processes into batches.
func batchesOf(name string, cases []crash.Case, lag crash.Lag) (batches []crash.Batch) {
	byEnding := map[crash.Ending][]crash.Case{}
	for _, c := range cases {
		byEnding[c.Scenario.Ending] = append(byEnding[c.Scenario.Ending], c)
	}
	for ending, cases := range byEnding {
		for chunk := range slices.Chunk(cases, batchSize) {
			batches = append(batches, crash.Batch{Name: fmt.Sprintf("%s%d%d", name, ending, len(batches)), Cases: chunk, Lag: lag})
		}
	}
	return batches
}

// lags are those that every case meets.
func lags() []crash.Lag {
	lags := []crash.Lag{{}}
	for _, r := range crash.Resources {
		lags = append(lags, crash.Lag{Resource: r}, crash.Lag{Resource: r, Late: true})
	}
	return lags
}

// TestCrashAtEachWriteAndCallLosesNothingAndRepeatsNoRecordedCall kills the hub at each point of each scenario, with and
// without a watch that lags, if CRASHES is "all". Else it does that at the points where most can be lost.
func TestCrashAtEachWriteAndCallLosesNothingAndRepeatsNoRecordedCall(t *testing.T) {
	cases := enumerate(t)
	if t.Failed() {
		t.FailNow()
	}
	if os.Getenv("CRASHES") != "all" {
		cases = slices.DeleteFunc(cases, func(c crash.Case) bool { return !isDangerous(c) })
		runBatches(t, batchesOf("sample", cases, crash.Lag{Resource: "volumeattachments", Late: true}))
		return
	}
	for i, lag := range lags() {
		t.Run(lag.String(), func(t *testing.T) {
			results := runBatches(t, batchesOf(fmt.Sprintf("all%dx", i), cases, lag))
			t.Logf("%d crashes at %d points", len(results), len(cases))
		})
	}
}

// isDangerous reports whether the process is killed at a call whose need or success is recorded nowhere but in the
// objects that were written before it.
func isDangerous(c crash.Case) bool {
	return strings.HasPrefix(c.Point.Step, "call ") && c.Point.Phase != crash.After
}
