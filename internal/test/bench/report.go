package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Report has the results of cases, in the order of Cases.
type Report struct {
	Cases []Result `json:"cases"`
}

// Result is the result of one case.
type Result struct {
	Name    string    `json:"name"`
	About   string    `json:"about"`
	Date    time.Time `json:"date"`
	Took    string    `json:"took"` // the whole case
	Machine Machine   `json:"machine"`
	Command string    `json:"command"`
	Workers int       `json:"workers,omitempty"` // of each driver in drivers.yaml; 0: the default
	Rounds  int       `json:"rounds"`
	// SidecarRounds is in how many rounds csi-attacher took part; 0: in all, or in none.
	SidecarRounds int `json:"sidecarRounds,omitempty"`
	// Medians over the rounds, by competitor.
	Medians map[string]Figures `json:"medians"`
	// Ratios of the hub's figures to the floor's.
	Ratios  map[Figure]Ratio `json:"ratios,omitempty"`
	Samples Samples          `json:"samples"`
	// Series and Stacks are for charts, with medians over the rounds.
	Series   []Series  `json:"series,omitempty"`
	Stacks   []Stack   `json:"stacks,omitempty"`
	Verdicts []Verdict `json:"targets"`
}

// judge fills in the medians and the verdicts.
func (r *Result) judge(targets []Target) {
	r.Medians = map[string]Figures{}
	for _, name := range r.Samples.competitors() {
		r.Medians[name] = r.Samples.medians(name)
	}
	r.Ratios = map[Figure]Ratio{}
	for _, d := range described {
		if ratio, ok := r.Samples.ratio(d.figure, hubName, baselineName); ok {
			r.Ratios[d.figure] = ratio
		}
	}
	for _, t := range targets {
		if v, measured := t.judge(r.Samples); measured {
			r.Verdicts = append(r.Verdicts, v)
		}
	}
}

// ReadReport reads the file of WriteJSON. A missing file is an empty report.
func ReadReport(path string) (Report, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, nil
	}
	if err != nil {
		return Report{}, fmt.Errorf("read report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return Report{}, fmt.Errorf("read report %s: %w", path, err)
	}
	return r, nil
}

// With returns a report in which newer results replace those of the same cases.
func (r Report) With(newer Report) Report {
	all := slices.Clone(newer.Cases)
	for _, c := range r.Cases {
		if !slices.ContainsFunc(newer.Cases, func(n Result) bool { return n.Name == c.Name }) {
			all = append(all, c)
		}
	}
	order := CaseNames()
	slices.SortStableFunc(all, func(a, b Result) int {
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
	return Report{Cases: all}
}

// WriteJSON writes the report into a file, whose folder it makes if it does not exist.
func (r Report) WriteJSON(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder of report: %w", err)
	}
	// A program that is killed while it writes must not lose the cases that were measured before.
	written := path + ".new"
	if err := os.WriteFile(written, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.Rename(written, path); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
