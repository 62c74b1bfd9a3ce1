package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture"
)

func TestChaosSaysHowToRunWhatFailedAgain(t *testing.T) {
	held := &torture.Report{Seed: 7, Planned: 1000}
	failed := &torture.Report{Seed: 7, Planned: 1000, Findings: []torture.Finding{{About: "d0-v1", Text: "is lost"}}}
	for name, c := range map[string]struct {
		report *torture.Report
		err    error
		want   []string // in the error; none: no error
	}{
		"all held":         {held, nil, nil},
		"something is not": {failed, nil, []string{"1 things do not hold", "make chaos SEED=7 FAULTS=1000"}},
		"could not go on":  {held, errors.New("no port"), []string{"no port", "make chaos SEED=7 FAULTS=1000"}},
	} {
		err := judgeChaos(c.report, c.err)
		if (err != nil) != (c.want != nil) {
			t.Errorf("%s: got %v", name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in: %v", name, want, err)
			}
		}
	}
}
