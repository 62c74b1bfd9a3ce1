package bench

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// String is the report as tables for a terminal.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, %s\n", r.Date.Format(time.DateOnly), r.Machine, r.Command)
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "\n%s\n", c)
	}
	return b.String()
}

// String is the result as a table.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.headline())
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, cells := range r.cells() {
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	_ = t.Flush() // into memory
	for _, v := range r.Verdicts {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	return b.String()
}

// headline says what was measured and how.
func (r Result) headline() string {
	text := fmt.Sprintf("%s: %s; medians of %d rounds, %s", r.Name, r.About, r.Rounds, r.Took)
	if r.Workers > 0 {
		text += fmt.Sprintf("; hub with workers: %d", r.Workers)
	}
	return text
}

// cells are a table with a row for each figure and a column for each competitor; beside
// the hub stands what the floor had to it.
func (r Result) cells() [][]string {
	names := r.Samples.competitors()
	header := []string{""}
	for _, name := range names {
		header = append(header, name)
		if r.comparable(name) {
			header = append(header, name+" / "+floorName)
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
		if any {
			rows = append(rows, row)
		}
	}
	return rows
}

// comparable says whether a competitor is compared with the floor.
func (r Result) comparable(name string) bool {
	_, floor := r.Medians[floorName]
	return floor && name == hubName
}

func (r Result) compared(f Figure, name string) string {
	ratio, ok := r.Samples.ratio(f, name, floorName)
	if !ok {
		return "-"
	}
	return hundredths(ratio)
}
