package explain_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
)

func TestTheDriversWordAboutTheVolumeIsANote(t *testing.T) {
	problem := &status.VolumeHealth{Problems: []status.VolumeProblem{{Status: "INACCESSIBLE", Reason: "PathDown", Message: "no path\x1b[31m to the array."}}}
	many := &status.VolumeHealth{Problems: make([]status.VolumeProblem, 16)}
	for i := range many.Problems {
		many.Problems[i] = status.VolumeProblem{Status: "DEGRADED", Message: strings.Repeat("x", 4096)}
	}
	const can = "GET_VOLUME_HEALTH"
	for _, tt := range []struct {
		name      string
		question  string
		can       []string // capabilities of the driver
		health    *status.VolumeHealth
		err       error
		questions int
		notes     int
		unknown   int
		want      string // in the text
	}{
		{"unhealthy", "pod/web", []string{can}, problem, nil, 1, 1, 0, `the driver reports the volume as INACCESSIBLE (PathDown): no path\x1b[31m to the array` + "\n        -> Look at the volume"},
		{"healthy", "csi-1", []string{can}, &status.VolumeHealth{}, nil, 1, 0, 0, ""},
		{"many problems", "csi-1", []string{can}, many, nil, 1, 5, 0, "x [...]"},
		{"not answered", "pvc/data", []string{can}, nil, errors.New("the driver is not connected"), 1, 0, 1, "the health of the volume, which the driver may report: the driver is not connected"},
		{"the driver cannot say it, or the hub is an earlier one", "csi-1", nil, nil, nil, 0, 0, 0, ""},
		{"about a driver", "driver/" + driverName, []string{can}, problem, nil, 0, 0, 0, ""},
		{"about a node", "node/node-1", []string{can}, problem, nil, 0, 0, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			w.served.Capabilities, w.health, w.healthErr = tt.can, tt.health, tt.err
			report, err := w.asked(t, tt.question)
			if err != nil {
				t.Fatal(err)
			}
			text := report.Text()
			if w.healthQuestions != tt.questions || !strings.Contains(text, tt.want) || len(report.Unknown) != tt.unknown || len(text) > 6000 {
				t.Errorf("%d questions, unknown %v:\n%.3000s", w.healthQuestions, report.Unknown, text)
			}
			notes := 0
			for _, v := range report.Volumes {
				for _, n := range v.Notes {
					if n.Verdict == diagnosis.VolumeUnhealthy {
						notes++
					}
				}
				if v.Result != explain.Waiting {
					t.Errorf("the volume is %s", v.Result)
				}
			}
			if notes != tt.notes {
				t.Errorf("%d notes, want %d:\n%.3000s", notes, tt.notes, text)
			}
		})
	}
}
