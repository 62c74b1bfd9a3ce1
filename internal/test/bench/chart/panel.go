package chart

import (
	"math"
	"strconv"
	"strings"
)

// Heights, in pixels.
const (
	barHeight  = 14
	barGap     = 3
	groupGap   = 10
	axisHeight = 34 // numbers below a plot
)

// mostTicks is how many numbers an axis has at most.
const mostTicks = 6

// Panel is one diagram with horizontal bars in groups.
type Panel struct {
	Title string
	Show  func(float64) string // formats the numbers of the axis; nil: Number
	Bars  []Group
}

// Group is a name with one or more bars.
type Group struct {
	Name string
	Bars []Bar
}

// Bar is a horizontal bar.
type Bar struct {
	Value float64
	Ink   Ink
	Text  string // at its end
}

// box is a rectangle of the picture.
type box struct{ left, top, width, height float64 }

func (p Panel) headHeight(width float64) float64 {
	return float64(18*len(wrap(p.Title, width, strong))) + 8
}

func (p Panel) plotHeight() float64 {
	height := 0.0
	for _, g := range p.Bars {
		height += groupGap + float64(len(g.Bars))*(barHeight+barGap)
	}
	return height + groupGap - barGap
}

// draw draws the panel into a box. The plot begins at head below its top.
func (p Panel) draw(c *canvas, b box, head float64) {
	y := b.top
	for _, line := range wrap(p.Title, b.width, strong) {
		y += 14
		c.text(b.left, y, start, strong, Text, line)
		y += 4
	}
	p.drawBars(c, box{b.left, b.top + head, b.width, p.plotHeight()})
}

// drawBars draws groups of bars from top to bottom, with their names to the left.
func (p Panel) drawBars(c *canvas, b box) {
	var names, texts, most float64
	for _, g := range p.Bars {
		names = max(names, textWidth(g.Name, small))
		for _, bar := range g.Bars {
			texts, most = max(texts, textWidth(bar.Text, small)), max(most, bar.Value)
		}
	}
	b.left, b.width = b.left+names+8, b.width-names-8
	if most <= 0 {
		most = 10 // no values
	}
	high := most * b.width / max(b.width-texts-10, 1) // room for the texts
	p.drawAxis(c, b, high)
	y := b.top + groupGap
	for _, g := range p.Bars {
		c.text(b.left-6, y+float64(len(g.Bars))*(barHeight+barGap)/2+2, end, small, Text, g.Name)
		for _, bar := range g.Bars {
			length := bar.Value / high * b.width
			c.rect(b.left, y, length, barHeight, bar.Ink)
			c.text(b.left+length+5, y+barHeight-3, start, small, Text, bar.Text)
			y += barHeight + barGap
		}
		y += groupGap
	}
}

// drawAxis draws the axis from 0 to high below a plot, with the vertical lines of the grid. Numbers that would touch are left out.
func (p Panel) drawAxis(c *canvas, b box, high float64) {
	show := p.Show
	if show == nil {
		show = Number
	}
	free := b.left - margin
	for _, v := range ticks(high) {
		at := b.left + v/high*b.width
		c.line(at, b.top, at, b.top+b.height, grid)
		if half := textWidth(show(v), small) / 2; at-half >= free {
			c.text(at, b.top+b.height+14, middle, small, Text, show(v))
			free = at + half + 6
		}
	}
}

// ticks returns round numbers from 0 to high: 1, 2 or 5 and zeros apart.
func ticks(high float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(high/mostTicks)))
	for _, factor := range []float64{2, 2.5, 2} {
		if high/step > mostTicks {
			step *= factor
		}
	}
	var ticks []float64
	for i := 0; float64(i)*step <= high*1.0001; i++ {
		ticks = append(ticks, float64(i)*step)
	}
	return ticks
}

// Number formats a number with up to four digits, and with commas between thousands.
func Number(v float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(rounded, 'f', -1, 64), ".")
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return whole + fraction
}
