package torture

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReportHasTheMostFrequentFaultsFirstAndNoZeros(t *testing.T) {
	r := &Report{
		Seed: 7, Planned: 10, Faults: 12, Calls: 340, Took: 90 * time.Second,
		Counts:    map[Kind]int{APIStop: 0, HubKill: 3, DriverError: 6, DriverCrash: 3, SecretGone: 0},
		Codes:     map[string]int{"Aborted": 2, "Unavailable": 4, "Internal": 0},
		Stretches: []StretchShown{{Number: 0, Faults: 12, Lasted: 9 * time.Second, Quiet: 1500 * time.Millisecond, Attached: 8}},
	}
	want := ` COUNT  FAULT
     6  driver error
     3  driver crash
     3  hub kill

 COUNT  ERROR OF A DRIVER
     4  Unavailable
     2  Aborted

seed 7: 12 faults in 1m30s, 340 calls of drivers, all right again 1.5 s after a stretch at most: everything held
`
	if diff := cmp.Diff(want, r.String()); diff != "" {
		t.Error(diff)
	}
	if got, want := r.Stretches[0].String(), "stretch 0: 12 faults in 9.0 s, all right again after 1.5 s, 8 volumes attached"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
