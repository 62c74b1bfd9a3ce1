package crash_test

import (
	"slices"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture/crash"
)

// alwaysSteps has the steps that every run of a scenario without a crash has, by scenario. The process may add others: it
// may for example try to restore the finalizer of "dangling" before it sees the deletion. Without this list a proxy
// that records no writes would only leave fewer points to crash at.
var alwaysSteps = map[string][]string{
	"attach":   {patchVA1, patchPV + "v1 #1", publishAt + "v1 id1 #1", statusVA1},
	"detach":   {unpublishV1, patchVA1},
	"move":     {unpublishV1, patchVA1, patchVA2, publishAt + "v1 id2 #1", statusVA2},
	"drift":    {publishAt + "v1 id1 #1", statusVA1},
	"node ID":  {unpublishV1, patchVA1, publishAt + "v1 id9 #1", statusVA1},
	"dangling": {unpublishV1},
	"deletion": {unpublishV1, patchVA1, patchPV + "v1 #1"},
	"drain":    slices.Concat(callsInFlight, []string{"release lease #1"}),
	"handover": slices.Concat(callsInFlight, []string{"release lease #1"}),
	"takeover": {"take lease #1", patchPV + "v3 #1", "patch volumeattachments va3 #1", publishAt + "v3 id1 #1", "patch volumeattachments va3 status #1"},
}

const (
	patchPV     = "patch persistentvolumes "
	patchVA1    = "patch volumeattachments va1 #1"
	patchVA2    = "patch volumeattachments va2 #1"
	statusVA1   = "patch volumeattachments va1 status #1"
	statusVA2   = "patch volumeattachments va2 status #1"
	publishAt   = "call ControllerPublishVolume "
	unpublishV1 = "call ControllerUnpublishVolume v1 id1 #1"
)

var callsInFlight = []string{patchVA2, patchPV + "v2 #1", unpublishV1, publishAt + "v2 id1 #1", patchVA1, statusVA2}

// checkSteps checks that the results of runs without a crash have the steps that they always have.
func checkSteps(t *testing.T, results []crash.Result) {
	t.Helper()
	if len(results) != len(alwaysSteps) {
		t.Errorf("%d scenarios have run, %d are listed", len(results), len(alwaysSteps))
	}
	for _, r := range results {
		want := alwaysSteps[r.Case.Scenario.Name]
		if want == nil {
			t.Errorf("%s: its steps are not listed", r.Case)
		}
		for _, step := range want {
			if !slices.Contains(r.Steps, step) {
				t.Errorf("%s: step %q is missing in %q", r.Case, step, r.Steps)
			}
		}
	}
}
