package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Report is what was measured.
type Report struct {
	Date    time.Time `json:"date"`
	Machine Machine   `json:"machine"`
	Command string    `json:"command"`
	Cases   []Result  `json:"cases"`
}

// Result is what came of one case.
type Result struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Workers int    `json:"workers,omitempty"` // of each driver in drivers.yaml; 0: the default
	Rounds  int    `json:"rounds"`
	Took    string `json:"took"` // with everything
	// Medians are those of each competitor over the rounds.
	Medians  map[string]Figures `json:"medians"`
	Samples  Samples            `json:"samples"`
	Verdicts []Verdict          `json:"targets"`
}

// judge fills in the medians and the verdicts.
func (r *Result) judge(targets []Target) {
	r.Medians = map[string]Figures{}
	for _, name := range r.Samples.competitors() {
		r.Medians[name] = r.Samples.medians(name)
	}
	for _, t := range targets {
		if v, measured := t.judge(r.Samples); measured {
			r.Verdicts = append(r.Verdicts, v)
		}
	}
}

// WriteJSON writes the report into a file.
func (r Report) WriteJSON(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
