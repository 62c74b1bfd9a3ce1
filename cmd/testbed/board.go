package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// board is what display draws on a terminal while a scene runs.
type board struct {
	headline string
	elapsed  time.Duration
	rows     []row
}

// line is a line of a board and how it is shown.
type line struct {
	text  string
	style style
}

// style is an ANSI escape sequence that a line begins with; empty: none.
type style string

const (
	bold   style = "\x1b[1m"
	dim    style = "\x1b[2m"
	green  style = "\x1b[32m"
	yellow style = "\x1b[33m"
	reset        = "\x1b[0m"
)

// columns of the table, from left to right. A narrow terminal shows only the first
// ones.
var columns = []struct {
	title string
	value func(row) string
}{
	{"driver", func(r row) string { return r.Driver }},
	{"waiting", func(r row) string { return strconv.Itoa(r.Waiting) }},
	{"attaching", func(r row) string { return strconv.Itoa(r.Attaching) }},
	{"attached", func(r row) string { return strconv.Itoa(r.Attached) }},
	{"detaching", func(r row) string { return strconv.Itoa(r.Detaching) }},
	{"errors", func(r row) string { return strconv.Itoa(r.Failing) }},
	{"seen", func(r row) string { return strconv.Itoa(r.Failed) }},
	{"p50", func(r row) string { return r.Took.show(r.Took.P50) }},
	{"p99", func(r row) string { return r.Took.show(r.Took.P99) }},
}

// lines returns the lines of the board, each narrower than width.
func (b board) lines(width int) []line {
	lines := []line{{text: fmt.Sprintf("%3.0fs  %s", b.elapsed.Seconds(), b.headline), style: bold}}
	table := b.table(width)
	lines = append(lines, line{text: table[0], style: dim})
	for i, r := range b.rows {
		lines = append(lines, line{text: table[i+1], style: r.style()})
	}
	for i := range lines {
		lines[i].text = cut(lines[i].text, width-1)
	}
	return lines
}

// table returns the header and a line for each row, with as many columns as fit.
func (b board) table(width int) []string {
	name := func(r row) string { return r.Driver }
	for n := len(columns); ; n-- {
		table := b.grid(n, name)
		if n == len(columns) && !fits(table, width) {
			name = func(r row) string { return shortName(r.Driver) }
			table = b.grid(n, name)
		}
		if n == 1 || fits(table, width) {
			return table
		}
	}
}

// grid lays out the first n columns.
func (b board) grid(n int, name func(row) string) []string {
	cells := make([][]string, 1, len(b.rows)+1)
	for _, c := range columns[:n] {
		cells[0] = append(cells[0], c.title)
	}
	for _, r := range b.rows {
		texts := []string{name(r)}
		for _, c := range columns[1:n] {
			texts = append(texts, c.value(r))
		}
		cells = append(cells, texts)
	}
	return align(cells)
}

func fits(table []string, width int) bool {
	return utf8.RuneCountInString(table[0]) < width
}

// style returns the style that marks the state of a row.
func (r row) style() style {
	switch {
	case r.Failing > 0:
		return yellow
	case r.Attached > 0 && r.Waiting+r.Attaching+r.Detaching == 0:
		return green
	}
	return ""
}

// String returns the row as a line of text.
func (r row) String() string {
	return fmt.Sprintf("%s: %d waiting, %d attaching, %d attached, %d detaching, errors %d now %d seen, p50 %s p99 %s",
		shortName(r.Driver), r.Waiting, r.Attaching, r.Attached, r.Detaching, r.Failing, r.Failed,
		r.Took.show(r.Took.P50), r.Took.show(r.Took.P99))
}

// show formats one of the times.
func (t took) show(d time.Duration) string {
	if t.N == 0 {
		return "-"
	}
	return showDuration(d)
}

func showDuration(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// shortName returns a driver's name up to its first dot.
func shortName(driver string) string {
	short, _, _ := strings.Cut(driver, ".")
	return short
}

// align pads the cells of a table, the first column to the right and all others
// to the left, so that all its lines are equally long.
func align(cells [][]string) []string {
	var widths []int
	for _, texts := range cells {
		for i, text := range texts {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	lines := make([]string, len(cells))
	for i, texts := range cells {
		padded := make([]string, len(texts))
		for j, text := range texts {
			if j == 0 {
				padded[j] = fmt.Sprintf("%-*s", widths[j], text)
			} else {
				padded[j] = fmt.Sprintf("%*s", widths[j], text)
			}
		}
		lines[i] = strings.Join(padded, "  ")
	}
	return lines
}

// cut shortens a text to at most n characters.
func cut(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	if n < 1 {
		return ""
	}
	return string(runes[:n-1]) + "…"
}
