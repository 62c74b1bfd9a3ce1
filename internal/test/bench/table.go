package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// String returns the report as tables for a terminal.
func (r Report) String() string {
	var b strings.Builder
	for i, c := range r.Cases {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(c.String())
	}
	return b.String()
}

// String returns the result as a table, with the verdicts.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", r.Name, r.About)
	fmt.Fprintf(&b, "%s, %s, %s, %s\n", r.Date.Format(time.DateOnly), r.Command, r.conditions(), r.Machine)
	b.WriteString(grid(r.cells(func(description) bool { return true })))
	for _, v := range r.Verdicts {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	return b.String()
}

// conditions returns how the case was measured.
func (r Result) conditions() string {
	text := fmt.Sprintf("medians of %d rounds", r.Rounds)
	switch {
	case r.Rounds == 1:
		text = "one round"
	case r.comparable(hubName):
		text += fmt.Sprintf(", %s / %s that of each round's ratio (and the quartiles)", hubName, baselineName)
	}
	if r.SidecarRounds > 0 {
		text += fmt.Sprintf(", csi-attacher in %d of them", r.SidecarRounds)
	}
	text += ", in " + r.Took
	if slowest, fastest := r.Samples.speeds(); slowest > 0 && r.Rounds > 1 {
		text += fmt.Sprintf(", machine's speed %.0f to %.0f MB/s (means of turns)", slowest, fastest)
	}
	if r.Workers > 0 {
		text += fmt.Sprintf(", hub with workers: %d", r.Workers)
	}
	return text
}

// grid lays out cells for a terminal: the first column aligned to the left, all others to the right.
func grid(cells [][]string) string {
	var b strings.Builder
	widest := 0
	for _, row := range cells {
		widest = max(widest, utf8.RuneCountInString(row[0]))
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range cells {
		fmt.Fprintf(t, "%-*s\t%s\t\n", widest, row[0], strings.Join(row[1:], "\t"))
	}
	_ = t.Flush() // into memory
	return b.String()
}

// cells returns a table with a row for each figure that is shown and a column for each competitor. The
// hub has a further column with its ratio to the baseline.
func (r Result) cells(shown func(description) bool) [][]string {
	names := r.Samples.competitors()
	header := []string{""}
	for _, name := range names {
		header = append(header, name)
		if r.comparable(name) {
			header = append(header, name+" / "+baselineName)
		}
	}
	rows := [][]string{header}
	for _, d := range described {
		row, any := []string{d.title}, false
		for _, name := range names {
			text := "-"
			if value, ok := r.Medians[name][d.figure]; ok {
				text, any = d.show(value), true
			}
			row = append(row, text)
			if r.comparable(name) {
				row = append(row, r.compared(d.figure, name))
			}
		}
		if any && shown(d) {
			rows = append(rows, row)
		}
	}
	return rows
}

// comparable reports whether a competitor is compared with the baseline.
func (r Result) comparable(name string) bool {
	_, measured := r.Medians[baselineName]
	return measured && name == hubName
}

func (r Result) compared(f Figure, name string) string {
	ratio, ok := r.Samples.ratio(f, name, baselineName)
	if !ok {
		return "-"
	}
	return ratio.String()
}
