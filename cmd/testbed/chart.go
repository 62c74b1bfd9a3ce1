package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/template"

	"github.com/csi-attach-hub/csi-attach-hub/internal/soak"
)

// Sizes are in pixels. The plot is the part of a chart between its axes.
const (
	chartColumns            = 2
	chartWidth, chartHeight = 650, 190
	plotWidth, plotHeight   = 570, 125 // the template has them too
	plotLeft, plotTop       = 60, 30
	mostTicks               = 6 // on an axis
	inkTrend, inkGrown      = "#208040", "#c02020"
)

var chartTemplate = template.Must(template.New("charts").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" font-family="sans-serif" font-size="11" fill="none">
<rect width="100%" height="100%" fill="white"/>
{{- range .Charts}}
<g transform="translate({{.Left}} {{.Top}})">
<text x="285" y="-10" text-anchor="middle" font-size="13" fill="{{.TitleInk}}">{{html .Title}}</text>
{{- range .X}}
<line x1="{{.At}}" x2="{{.At}}" y2="125" stroke="#ddd"/><text x="{{.At}}" y="139" text-anchor="middle" fill="black">{{.Text}}</text>
{{- end}}
{{- range .Y}}
<line x2="570" y1="{{.At}}" y2="{{.At}}" stroke="#ddd"/><text x="-6" y="{{.At}}" dy="4" text-anchor="end" fill="black">{{.Text}}</text>
{{- end}}
<text x="285" y="153" text-anchor="middle" fill="black">minutes</text>
<path d="{{.Values}}" stroke="#1f5fa8"/>
<path d="{{.Trend}}" stroke="{{.TrendInk}}" stroke-dasharray="4 3"/>
</g>
{{- end}}
</svg>
`))

// chart is a soak.Finding as it is drawn.
type chart struct {
	Left, Top                 int // of the plot
	Title, TitleInk, TrendInk string
	X, Y                      []tick
	Values, Trend             string // paths
}

// tick is a line of the grid, with the number at the axis.
type tick struct {
	At   int // pixels from the left or the top of the plot
	Text string
}

// drawChart draws each quantity over time as SVG, with the line of its trend after the warm-up.
func drawChart(out io.Writer, findings []soak.Finding) error {
	rows := (len(findings) + chartColumns - 1) / chartColumns
	charts := make([]chart, len(findings))
	for i, f := range findings {
		charts[i] = chartOf(f)
		charts[i].Left, charts[i].Top = i%chartColumns*chartWidth+plotLeft, i/chartColumns*chartHeight+plotTop
	}
	picture := map[string]any{"Width": chartColumns * chartWidth, "Height": rows * chartHeight, "Charts": charts}
	if err := chartTemplate.Execute(out, picture); err != nil {
		return fmt.Errorf("write SVG: %w", err)
	}
	return nil
}

// chartOf draws one quantity.
func chartOf(f soak.Finding) chart {
	right, top := 0.01, 1.0
	for _, p := range slices.Concat(f.Points, f.Line[:]) {
		right, top = max(right, p.At.Minutes()), max(top, 1.1*p.Value)
	}
	x := func(minutes float64) float64 { return minutes / right * plotWidth }
	y := func(value float64) float64 { return (1 - value/top) * plotHeight }
	path := func(points []soak.Point) string {
		var d strings.Builder
		for i, p := range points {
			fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x(p.At.Minutes()), y(p.Value))
		}
		return d.String()
	}
	c := chart{Title: f.Title(), TitleInk: "black", TrendInk: inkTrend, X: ticks(right, x), Y: ticks(top, y), Values: path(f.Points), Trend: path(f.Line[:])}
	if f.Grew {
		c.TitleInk, c.TrendInk = inkGrown, inkGrown
		c.Title += fmt.Sprintf(": grew by %.2f, allowed is %.2f", f.Rise, f.Allowed)
	}
	return c
}

// ticks returns round numbers from 0 to the end of an axis: 1, 2 or 5 and zeros apart.
func ticks(end float64, place func(float64) float64) []tick {
	step := math.Pow(10, math.Floor(math.Log10(end/mostTicks)))
	for _, factor := range []float64{2, 2.5, 2} {
		if end/step > mostTicks {
			step *= factor
		}
	}
	var ticks []tick
	for i := 0; float64(i)*step <= end; i++ {
		number := float64(i) * step
		ticks = append(ticks, tick{At: int(math.Round(place(number))), Text: fmt.Sprintf("%.4g", number)})
	}
	return ticks
}
