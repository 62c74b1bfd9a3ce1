package chart

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// Sizes of texts, in pixels.
const (
	small  = 11
	normal = 12
	strong = 14 // bold
	huge   = 20 // bold
)

// canvas writes elements of SVG. All coordinates are pixels of the picture.
type canvas struct {
	bytes.Buffer
	theme Theme
}

// anchor says which end of a text is at its position.
type anchor string

const (
	start  anchor = "start"
	middle anchor = "middle"
	end    anchor = "end"
)

func (c *canvas) text(x, y float64, at anchor, size int, ink Ink, text string) {
	var attributes string
	if at != start {
		attributes = fmt.Sprintf(` text-anchor="%s"`, at)
	}
	if isBold(size) {
		attributes += ` font-weight="bold"`
	}
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" font-size="%d" fill="%s"%s>%s</text>`+"\n",
		x, y, size, c.theme.colors[ink], attributes, html.EscapeString(text))
}

func (c *canvas) rect(x, y, width, height float64, ink Ink) {
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, max(width, 0), height, c.theme.colors[ink])
}

// line draws a straight line of the grid.
func (c *canvas) line(x1, y1, x2, y2 float64, ink Ink) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, c.theme.colors[ink])
}

func isBold(size int) bool { return size >= strong }

// textWidth estimates the width of a text in pixels, rather too wide than too narrow: the fonts of readers differ.
func textWidth(text string, size int) float64 {
	perLetter := 0.6
	if isBold(size) {
		perLetter = 0.68
	}
	return perLetter * float64(size) * float64(utf8.RuneCountInString(text))
}

// wrap breaks a text into lines that are not wider than width, except words that are.
func wrap(text string, width float64, size int) []string {
	var lines []string
	var line string
	for word := range strings.FieldsSeq(text) {
		if line == "" {
			line = word
		} else if longer := line + " " + word; textWidth(longer, size) <= width {
			line = longer
		} else {
			lines, line = append(lines, line), word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Ink names a colour of a Theme.
type Ink int

// Inks of texts and lines. Inks of data begin with Data.
const (
	Text Ink = iota
	dim      // less important texts
	grid
	paper
	Data // the first of four: Data, Data+1, ...
)

// Theme has the colours of a picture.
type Theme struct {
	Name   string // light or dark
	colors [Data + 4]string
}

// The themes. They have the colours of the other pictures in the documents.
var (
	Light = Theme{"light", [...]string{"#1f2328", "#57606a", "#d0d7de", "#ffffff", "#1f5fa8", "#6e7781", "#bc4c00", "#d4a017"}}
	Dark  = Theme{"dark", [...]string{"#e6edf3", "#9198a1", "#30363d", "#0d1117", "#58a6ff", "#9aa4ae", "#f0883e", "#e3c341"}}
)
