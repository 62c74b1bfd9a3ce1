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
		x, y, size, c.theme.color(ink), attributes, html.EscapeString(text))
}

func (c *canvas) rect(x, y, width, height float64, ink Ink) {
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, max(width, 0), height, c.theme.color(ink))
}

// line draws a straight line of the grid or a whisker.
func (c *canvas) line(x1, y1, x2, y2 float64, ink Ink) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, c.theme.color(ink))
}

// path draws a line through points.
func (c *canvas) path(points []Point, style Line) {
	var d strings.Builder
	for i, p := range points {
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], p.X, p.Y)
	}
	dash := ""
	if style.Dash != "" {
		dash = fmt.Sprintf(` stroke-dasharray="%s"`, style.Dash)
	}
	fmt.Fprintf(c, `<path d="%s" stroke="%s" stroke-width="1.8" stroke-linejoin="round"%s/>`+"\n", d.String(), c.theme.color(style.Ink), dash)
	if style.Dots {
		for _, p := range points {
			fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", p.X, p.Y, c.theme.color(style.Ink))
		}
	}
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
