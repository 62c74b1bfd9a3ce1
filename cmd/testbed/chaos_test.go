package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture"
)

func TestChaosSaysHowToRunWhatFailedAgain(t *testing.T) {
	held := &torture.Report{Seed: 7, Planned: 1000, Faults: 1003, Counts: map[torture.Kind]int{torture.HubKill: 3}}
	failed := &torture.Report{Seed: 7, Planned: 1000, Findings: []torture.Finding{{About: "d0-v1", Text: "is lost"}}, History: []string{"it was there"}}
	for name, c := range map[string]struct {
		report *torture.Report
		err    error
		want   []string // in the text or the error
		fails  bool
	}{
		"all held":         {held, nil, []string{"3  hub kill", "1003 faults", "everything held"}, false},
		"something is not": {failed, nil, []string{"d0-v1: is lost", "it was there", "make chaos SEED=7 FAULTS=1000"}, true},
		"could not go on":  {held, errors.New("no port"), []string{"no port", "make chaos SEED=7 FAULTS=1000"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := showChaos(c.report, c.err, false, &out)
			if (err != nil) != c.fails {
				t.Errorf("got %v", err)
			}
			text := out.String()
			if err != nil {
				text += err.Error()
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in:\n%s", want, text)
				}
			}
		})
	}
}

func TestChaosPrintsTheCountOfEachKindAsJSON(t *testing.T) {
	var out bytes.Buffer
	if err := showChaos(&torture.Report{Counts: map[torture.Kind]int{torture.HubKill: 3, torture.APIStop: 0}}, nil, true, &out); err != nil {
		t.Fatal(err)
	}
	var got struct{ Counts map[string]int }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if n, ok := got.Counts["api stop"]; !ok || n != 0 || got.Counts["hub kill"] != 3 {
		t.Errorf("got %v", got.Counts)
	}
}
