package chart

import (
	"fmt"
	"html"
)

// Sizes and distances, in pixels. The picture is as wide as a page of documentation.
const (
	width      = 960
	margin     = 24
	lineHeight = 15 // of small and normal text
	gap        = 28 // between rows of panels
	columns    = 2  // of panels
)

// Picture is a drawing with one or more panels.
type Picture struct {
	Title  string
	About  string // for readers that do not see the picture
	Note   string // below the title
	Legend []Key
	Panels []Panel
}

// Key explains one ink of the panels.
type Key struct {
	Name string
	Ink  Ink
}

// SVG draws the picture.
func (p Picture) SVG(theme Theme) []byte {
	body := &canvas{theme: theme}
	y := p.head(body)
	const columnWidth = float64(width-2*margin+gap)/columns - gap
	for first := 0; first < len(p.Panels); first += columns {
		row := p.Panels[first:min(first+columns, len(p.Panels))]
		var head, plot float64
		for _, panel := range row {
			head, plot = max(head, panel.headHeight(columnWidth)), max(plot, panel.plotHeight())
		}
		for i, panel := range row {
			left := margin + float64(i)*(columnWidth+gap)
			panel.draw(body, box{left, y, columnWidth, head + plot}, head)
		}
		y += head + plot + axisHeight + gap
	}
	height := y - gap + margin
	svg := &canvas{theme: theme}
	fmt.Fprintf(svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" viewBox="0 0 %d %.0f" role="img" aria-labelledby="title about" `+
		`font-family="DejaVu Sans,Verdana,sans-serif" fill="none">`+"\n", width, height, width, height)
	fmt.Fprintf(svg, "<title id=\"title\">%s</title>\n<desc id=\"about\">%s</desc>\n", html.EscapeString(p.Title), html.EscapeString(p.About))
	svg.rect(0, 0, width, height, paper)
	svg.Write(body.Bytes())
	svg.WriteString("</svg>\n")
	return svg.Bytes()
}

// head draws the title, the notes and the legend, and returns where the panels begin.
func (p Picture) head(c *canvas) float64 {
	y := 20.0
	for _, line := range wrap(p.Title, width-2*margin, huge) {
		y += 18
		c.text(margin, y, start, huge, Text, line)
		y += 4
	}
	for _, line := range wrap(p.Note, width-2*margin, normal) {
		y += lineHeight + 2
		c.text(margin, y, start, normal, dim, line)
	}
	const swatch, space = 28, 24
	x := float64(margin)
	y += 24
	for _, key := range p.Legend {
		wide := swatch + 6 + textWidth(key.Name, normal)
		if x > margin && x+wide > width-margin {
			x, y = margin, y+lineHeight+4
		}
		c.rect(x, y-11, swatch, 14, key.Ink)
		c.text(x+swatch+6, y, start, normal, Text, key.Name)
		x += wide + space
	}
	return y + gap
}
