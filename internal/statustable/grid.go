package statustable

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// Style says how tables are drawn. The zero value is for a pipe: whole lines without colour.
type Style struct {
	Width int  // of the terminal, in characters; 0: no text is wrapped or cut
	Color bool // use the colours of ECMA-48 terminals
}

const (
	columnGap = 2
	// narrowText is the least width for the texts of the last column. In less, they stand below their row.
	narrowText = 48
	// indent is the indentation of texts below their row.
	indent = 4
)

// cell is one cell of a grid.
type cell struct {
	text  string // from outside: it is escaped when it is written
	color color
}

// row is one row of a grid. The last column has texts, each on lines of its own.
type row struct {
	cells []cell
	texts []string
}

// grid is a table. Its last column holds texts, which are wrapped and cut to the width of a terminal.
type grid struct {
	head     []string // with the title of the last column
	optional []string // columns to leave out where the terminal is too narrow, in this order
	beside   int      // how many of these to leave out before the texts go below their rows
	rows     []row
	maxLines int // of one text on a terminal
}

// write writes the grid.
func (g grid) write(out *strings.Builder, style Style, head bool) {
	for i := range g.rows {
		for j := range g.rows[i].cells {
			g.rows[i].cells[j].text = orDash(terminal.Line(g.rows[i].cells[j].text))
		}
	}
	widths, below := g.fit(style.Width, head)
	left := total(widths) // where the last column begins
	if below {
		left = indent
	}
	if head {
		columns := g.head
		if below {
			columns = columns[:len(columns)-1]
		}
		cells := make([]cell, len(columns))
		for i, name := range columns {
			cells[i].text = name
		}
		out.WriteString(strings.TrimRight(line(cells, widths, style), " ") + "\n")
	}
	for _, r := range g.rows {
		lines := r.lines(style.Width-left, style.Width > 0, g.maxLines)
		first := line(r.cells, widths, style)
		switch {
		case below:
			lines = slices.DeleteFunc(lines, func(text string) bool { return text == "-" })
			first = strings.TrimRight(first, " ")
		case len(lines) > 0:
			first += lines[0]
			lines = lines[1:]
		}
		out.WriteString(first + "\n")
		for _, text := range lines {
			out.WriteString(strings.Repeat(" ", left) + text + "\n")
		}
	}
}

// fit leaves out columns that do not fit and returns the widths of the others before the last one. below says that
// the texts of the last column stand below their rows: there is no room beside them.
func (g *grid) fit(width int, head bool) (widths []int, below bool) {
	widths = g.widths(head)
	if width == 0 {
		return widths, false
	}
	room := func(without int) int { // beside the columns, without the first optional ones
		left := width - total(widths)
		for _, name := range g.optional[:without] {
			left += widths[slices.Index(g.head, name)] + columnGap
		}
		return left
	}
	without := 0
	for without < g.beside && room(without) < narrowText {
		without++
	}
	if below = room(without) < narrowText; below {
		for without = 0; without < len(g.optional) && room(without)+columnGap < 0; {
			without++
		}
	}
	for _, name := range g.optional[:without] {
		at := slices.Index(g.head, name)
		g.drop(at)
		widths = slices.Delete(widths, at, at+1)
	}
	return widths, below
}

// widths returns the widths of the columns before the last one.
func (g grid) widths(head bool) []int {
	widths := make([]int, len(g.head)-1)
	for i := range widths {
		if head {
			widths[i] = utf8.RuneCountInString(g.head[i])
		}
		for _, r := range g.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i].text))
		}
	}
	return widths
}

// drop leaves out a column.
func (g *grid) drop(at int) {
	g.head = slices.Delete(slices.Clone(g.head), at, at+1)
	for i := range g.rows {
		g.rows[i].cells = slices.Delete(g.rows[i].cells, at, at+1)
	}
}

func total(widths []int) int {
	sum := 0
	for _, w := range widths {
		sum += w + columnGap
	}
	return sum
}

// line returns cells on one line, each as wide as its column; the last one too if it has one.
func line(cells []cell, widths []int, style Style) string {
	var out strings.Builder
	for i, c := range cells {
		out.WriteString(c.color.paint(c.text, style))
		if i < len(widths) {
			out.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+columnGap))
		}
	}
	return out.String()
}

// lines returns the texts of a row as lines.
func (r row) lines(width int, wrapped bool, most int) []string {
	var lines []string
	for _, text := range r.texts {
		text = orDash(terminal.Line(text))
		if !wrapped {
			lines = append(lines, text)
			continue
		}
		lines = append(lines, wrap(text, width, most)...)
	}
	if len(lines) == 0 {
		lines = []string{"-"}
	}
	return lines
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// wrap breaks a text into at most a number of lines of at most width characters. What does not fit is left out,
// and the last line ends with an ellipsis.
func wrap(text string, width, most int) []string {
	width = max(width, 2)
	runes := []rune(text)
	var lines []string
	for len(runes) > 0 {
		if len(runes) <= width {
			return append(lines, string(runes))
		}
		if len(lines) == most-1 {
			return append(lines, strings.TrimRight(string(runes[:width-1]), " ")+"…")
		}
		end := width // of the line: at the last space that fits, if there is one
		for i := width; i > width/3; i-- {
			if runes[i] == ' ' {
				end = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(runes[:end]), " "))
		runes = []rune(strings.TrimLeft(string(runes[end:]), " "))
	}
	return lines
}
