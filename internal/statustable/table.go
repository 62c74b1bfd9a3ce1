package statustable

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// Table is rows of cells and texts.
type Table struct {
	Titles   []string // of the columns; the last one has the texts
	Colored  string   // title of the column in the colour of the row's health
	Optional []string // titles of columns to leave out, in this order, where the terminal is too narrow for a row
	Rows     []Row
}

// Style says how tables are drawn. The zero value is for a pipe: all columns and whole texts, without colour.
type Style struct {
	Width int  // of the terminal, in characters; 0: none
	Wide  bool // the columns of -o wide
	Color bool // use the colours of ECMA-48 terminals
}

const (
	columnGap = 2
	// besideWidth is the least width for texts beside the columns. In less, they are below their row.
	besideWidth = 48
	// indent is the indentation of texts below their row.
	indent = 4
	// mostLines is how many lines of a text a terminal shows.
	mostLines = 3
)

// Row is one row of a Table. Its cells and texts may come from outside: they are escaped.
type Row struct {
	Health status.HealthState
	Cells  []string
	Red    string   // title of a column in which the row is red; empty for none
	Texts  []string // in the last column, each on lines of its own
}

// Text returns the lines of the table. Where a terminal has no room for the texts beside the columns, they are below
// their row.
func (t Table) Text(s Style) string {
	last := len(t.Titles) - 1
	rows := append([]Row{{Cells: t.Titles[:last], Texts: t.Titles[last:]}}, t.Rows...)
	widths, total := make([]int, last), 0
	for i, r := range rows {
		rows[i].Cells = make([]string, last)
		for j, text := range r.Cells {
			text = cmp.Or(terminal.Line(text), "-")
			rows[i].Cells[j] = text
			widths[j] = max(widths[j], utf8.RuneCountInString(text)+columnGap)
		}
	}
	for _, w := range widths {
		total += w
	}
	left := total // where the texts begin
	below := s.Width > 0 && total+besideWidth > s.Width
	if below {
		left, rows[0].Texts = indent, nil
		for _, title := range t.Optional {
			if at := slices.Index(t.Titles, title); total > s.Width+columnGap {
				total -= widths[at]
				widths[at] = 0 // left out
			}
		}
	}
	var out strings.Builder
	for _, r := range rows {
		var lines []string
		for _, text := range r.Texts {
			lines = append(lines, Wrap(terminal.Line(text), s.Width-left, mostLines)...)
		}
		line := ""
		for i, text := range r.Cells {
			padding := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text)))
			switch {
			case widths[i] == 0:
				continue
			case t.Titles[i] == t.Colored:
				text = s.Paint(text, r.Health)
			case t.Titles[i] == r.Red:
				text = s.Paint(text, status.Broken)
			}
			line += text + padding
		}
		if !below {
			if len(lines) == 0 {
				lines = []string{"-"}
			}
			line, lines = line+lines[0], lines[1:]
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, text := range lines {
			out.WriteString(strings.Repeat(" ", left) + text + "\n")
		}
	}
	return out.String()
}

// colors are the parameters of SGR for the colours.
var colors = map[status.HealthState]string{status.Broken: "1;31", status.Attention: "33", status.Standby: "2", status.Fine: "32"}

// Paint returns a text in the colour of a health.
func (s Style) Paint(text string, h status.HealthState) string {
	if text == "" || colors[h] == "" || !s.Color {
		return text
	}
	return "\x1b[" + colors[h] + "m" + text + "\x1b[0m"
}

// Wrap breaks a text into lines of at most width characters, if that is positive. What does not fit into most lines is
// left out if most is not 0, and the last line ends with an ellipsis.
func Wrap(text string, width, most int) []string {
	if text == "" {
		return nil
	}
	var lines []string
	rest := []rune(text)
	for width > 0 && len(rest) > width {
		if len(lines) == most-1 {
			rest = append(rest[:width-1], '…')
			break
		}
		end := width // of the line: at the last space that fits, if there is one. Few lines have no room for short ones
		for i := width; i > width/3*min(most, 1); i-- {
			if rest[i] == ' ' {
				end = i
				break
			}
		}
		lines = append(lines, string(rest[:end]))
		rest = []rune(strings.TrimLeft(string(rest[end:]), " "))
	}
	return append(lines, string(rest))
}
