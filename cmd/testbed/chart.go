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

// Sizes are in pixels. The picture is as wide as a page of documentation. The plot is the part of a chart
// between its axes.
const (
	pictureWidth              = 960
	headHeight                = 110 // title, version and legend
	chartColumns              = 2
	chartWidth, chartHeight   = pictureWidth / chartColumns, 240
	plotWidth, plotHeight     = 400, 130 // the template has them too
	plotLeft, plotTop         = 56, 66
	mostTicks                 = 6 // on an axis
	inkTrend, inkGrown, inkOK = "#208040", "#c02020", "#1f2328"
)

var chartTemplate = template.Must(template.New("charts").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" font-family="DejaVu Sans,Verdana,sans-serif" font-size="12" fill="none">
<rect width="100%" height="100%" fill="white"/>
<text x="24" y="36" font-size="20" font-weight="bold" fill="{{.TitleInk}}">{{html .Title}}</text>
<text x="24" y="58" fill="#57606a">{{html .About}}</text>
<text x="24" y="76" fill="#57606a">{{html .Load}}</text>
<g transform="translate(24 96)" fill="#1f2328">
<path d="M0 -4H28" stroke="#1f5fa8"/><text x="34">measured</text>
<path d="M120 -4H148" stroke="#208040" stroke-width="2" stroke-dasharray="6 4"/><text x="154">trend after the warm-up (red: it grew)</text>
<rect x="420" y="-11" width="28" height="14" fill="#eef1f4"/><text x="454">warm-up, not judged</text>
</g>
{{- range .Charts}}
<g transform="translate({{.Left}} {{.Top}})">
<text y="-40" font-size="14" font-weight="bold" fill="{{.TitleInk}}">{{html .Title}}</text>
<text y="-23" font-size="11" fill="#57606a">{{html .Measured}}</text>
<text y="-9" font-size="11" fill="{{.TitleInk}}">{{html .Verdict}}</text>
<rect width="{{.WarmUp}}" height="130" fill="#eef1f4"/>
{{- range .X}}
<line x1="{{.At}}" x2="{{.At}}" y2="130" stroke="#d0d7de"/><text x="{{.At}}" y="145" font-size="11" text-anchor="middle" fill="#1f2328">{{.Text}}</text>
{{- end}}
{{- range .Y}}
<line x2="400" y1="{{.At}}" y2="{{.At}}" stroke="#d0d7de"/><text x="-6" y="{{.At}}" dy="4" font-size="11" text-anchor="end" fill="#1f2328">{{.Text}}</text>
{{- end}}
<text x="200" y="160" font-size="11" text-anchor="middle" fill="#57606a">minutes since the start</text>
<path d="{{.Values}}" stroke="#1f5fa8"/>
<path d="{{.Trend}}" stroke="{{.TrendInk}}" stroke-width="2" stroke-dasharray="6 4"/>
</g>
{{- end}}
</svg>
`))

// chart is a soak.Finding as it is drawn.
type chart struct {
	Left, Top                 int // of the plot
	Title, TitleInk, TrendInk string
	Measured, Verdict         string
	WarmUp                    int // width
	X, Y                      []tick
	Values, Trend             string // paths
}

// tick is a line of the grid, with the number at the axis.
type tick struct {
	At   int // pixels from the left or the top of the plot
	Text string
}

// drawChart draws each quantity of a run over time as SVG, with the line of its trend after the warm-up and
// the judgement.
func drawChart(out io.Writer, r *soak.Report) error {
	rows := (len(r.Findings) + chartColumns - 1) / chartColumns
	charts := make([]chart, len(r.Findings))
	for i, f := range r.Findings {
		charts[i] = chartOf(f)
		charts[i].Left, charts[i].Top = i%chartColumns*chartWidth+plotLeft, headHeight+i/chartColumns*chartHeight+plotTop
	}
	title, ink := "csi-attach-hub does not grow under load", inkOK
	if grew := r.Grew(); len(grew) > 0 {
		title, ink = "csi-attach-hub grew under load: "+strings.Join(grew, ", "), inkGrown
	}
	picture := map[string]any{
		"Width": pictureWidth, "Height": headHeight + rows*chartHeight, "Charts": charts, "Title": title, "TitleInk": ink,
		"About": r.Version + ", soak of " + r.Began.UTC().Format("2006-01-02 15:04 UTC"), "Load": r.Load(),
	}
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
	measured, verdict, _ := strings.Cut(f.Sentence(), ". ")
	c := chart{
		Title: f.Title(), TitleInk: inkOK, TrendInk: inkTrend, Measured: measured + ".", Verdict: verdict,
		WarmUp: int(math.Round(x(f.Line[0].At.Minutes()))), X: ticks(right, x), Y: ticks(top, y), Values: path(f.Points), Trend: path(f.Line[:]),
	}
	if f.Grew {
		c.TitleInk, c.TrendInk = inkGrown, inkGrown
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
