package chart

// Heights, in pixels.
const (
	linesHeight = 150 // the plot of a panel with lines
	barHeight   = 14
	barGap      = 3
	groupGap    = 10
	axisHeight  = 34 // numbers and title below a plot
)

// Panel is one diagram. It has lines, or bars in groups.
type Panel struct {
	Title string
	Ink   Ink // of the title
	Notes []Note
	X, Y  Axis // bars have no Y
	Lines []Line
	Shade float64 // the area up to this X is shaded
	Bars  []Group
}

// Note is a line of text below the title of a panel.
type Note struct {
	Text string
	Ink  Ink
}

// Line is a line through points.
type Line struct {
	Ink    Ink
	Dash   string // as stroke-dasharray of SVG; empty: none
	Dots   bool   // at the points
	Points []Point
}

// Point is a point of a line, in the units of the axes.
type Point struct{ X, Y float64 }

// Group is a name with one or more bars.
type Group struct {
	Name string
	Bars []Bar
}

// Bar is a horizontal bar of one or more parts.
type Bar struct {
	Parts []Part
	Text  string // at its end
	// Low and High are the ends of a whisker, which shows how much the value varies; both 0: none.
	Low, High float64
}

// Part is a part of a bar.
type Part struct {
	Value float64
	Ink   Ink
}

// box is a rectangle of the picture.
type box struct{ left, top, width, height float64 }

func (p Panel) headHeight(width float64) float64 {
	lines := len(wrap(p.Title, width, strong))
	height := float64(18 * lines)
	for _, n := range p.Notes {
		height += float64(lineHeight * len(wrap(n.Text, width, small)))
	}
	if len(p.Lines) > 0 {
		height += lineHeight // title of the vertical axis
	}
	return height + 8
}

func (p Panel) plotHeight() float64 {
	if len(p.Bars) == 0 {
		return linesHeight
	}
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
		c.text(b.left, y, start, strong, p.Ink, line)
		y += 4
	}
	for _, n := range p.Notes {
		for _, line := range wrap(n.Text, b.width, small) {
			y += lineHeight
			c.text(b.left, y-2, start, small, n.Ink, line)
		}
	}
	plot := box{b.left, b.top + head, b.width, p.plotHeight()}
	if len(p.Bars) > 0 {
		p.drawBars(c, plot)
	} else {
		p.drawLines(c, plot)
	}
}

// drawLines draws axes and lines. The numbers of the vertical axis are to the left of the plot.
func (p Panel) drawLines(c *canvas, b box) {
	var xs, ys []float64
	for _, line := range p.Lines {
		for _, point := range line.Points {
			xs, ys = append(xs, point.X), append(ys, point.Y)
		}
	}
	y := p.Y.over(ys, b.height, 1.1)
	labels := 30.0 // so that the plots of a column have the same left end
	for _, v := range y.ticks() {
		labels = max(labels, textWidth(y.show(v), small))
	}
	const right = 16 // half of the last number of the horizontal axis
	b.left, b.width = b.left+labels+6, b.width-labels-6-right
	x := p.X.over(xs, b.width, 1)
	if p.Shade > 0 {
		c.rect(b.left, b.top, x.place(p.Shade), b.height, shade)
	}
	c.text(b.left-labels-6, b.top-8, start, small, Dim, p.Y.Title)
	for _, v := range y.ticks() {
		at := b.top + b.height - y.place(v)
		c.line(b.left, at, b.left+b.width, at, grid)
		c.text(b.left-6, at+4, end, small, Text, y.show(v))
	}
	p.drawX(c, b, x)
	for _, line := range p.Lines {
		var points []Point
		for _, point := range line.Points {
			if isNumber(point.X) && isNumber(point.Y) {
				points = append(points, Point{b.left + x.place(point.X), b.top + b.height - y.place(point.Y)})
			}
		}
		c.path(points, line)
	}
}

// drawX draws the horizontal axis below a plot, with the vertical lines of the grid. Numbers that would touch are left out.
func (p Panel) drawX(c *canvas, b box, x scale) {
	free := b.left - margin
	for _, v := range x.ticks() {
		at := b.left + x.place(v)
		c.line(at, b.top, at, b.top+b.height, grid)
		if half := textWidth(x.show(v), small) / 2; at-half >= free {
			c.text(at, b.top+b.height+14, middle, small, Text, x.show(v))
			free = at + half + 6
		}
	}
	c.text(b.left+b.width/2, b.top+b.height+29, middle, small, Dim, p.X.Title)
}

// drawBars draws groups of bars from top to bottom, with their names to the left.
func (p Panel) drawBars(c *canvas, b box) {
	var names, texts float64
	var ends []float64
	for _, g := range p.Bars {
		names = max(names, textWidth(g.Name, small))
		for _, bar := range g.Bars {
			texts = max(texts, textWidth(bar.Text, small))
			ends = append(ends, max(bar.sum(), bar.High))
		}
	}
	b.left, b.width = b.left+names+8, b.width-names-8
	x := p.X.over(ends, b.width, b.width/max(b.width-texts-10, 1))
	p.drawX(c, b, x)
	y := b.top + groupGap
	for _, g := range p.Bars {
		c.text(b.left-6, y+float64(len(g.Bars))*(barHeight+barGap)/2+2, end, small, Text, g.Name)
		for _, bar := range g.Bars {
			at := 0.0
			for _, part := range bar.Parts {
				if isNumber(part.Value) {
					c.rect(b.left+x.place(at), y, x.place(at+part.Value)-x.place(at), barHeight, part.Ink)
					at += part.Value
				}
			}
			if bar.High > bar.Low {
				c.line(b.left+x.place(bar.Low), y+barHeight/2, b.left+x.place(bar.High), y+barHeight/2, Text)
				for _, v := range []float64{bar.Low, bar.High} {
					c.line(b.left+x.place(v), y+3, b.left+x.place(v), y+barHeight-3, Text)
				}
			}
			c.text(b.left+x.place(max(at, bar.High))+5, y+barHeight-3, start, small, Text, bar.Text)
			y += barHeight + barGap
		}
		y += groupGap
	}
}

func (b Bar) sum() float64 {
	sum := 0.0
	for _, part := range b.Parts {
		if isNumber(part.Value) {
			sum += part.Value
		}
	}
	return sum
}
