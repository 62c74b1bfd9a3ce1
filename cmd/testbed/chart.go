package main

import (
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/chart"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture"
)

const (
	measuredInk = chart.Data
	trendDash   = "6 4"
)

// drawSoak returns an SVG picture with each quantity of a run over time, the line of its trend after the warm-up, and the judgement.
func drawSoak(r *torture.SoakReport) []byte {
	p := chart.Picture{
		Title: "csi-attach-hub does not grow under load", Columns: 2,
		Notes: []string{r.Version + ", soak of " + r.Began.UTC().Format("2006-01-02 15:04 UTC"), r.Load()},
		Legend: []chart.Key{
			{Name: "measured", Ink: measuredInk, Line: &chart.Line{}},
			{Name: "trend after the warm-up (red: it grew)", Ink: chart.Good, Line: &chart.Line{Dash: trendDash}},
			chart.Shaded("warm-up, not judged"),
		},
	}
	if grew := r.Grew(); len(grew) > 0 {
		p.Title, p.Ink = "csi-attach-hub grew under load: "+strings.Join(grew, ", "), chart.Alert
	}
	var about []string
	for _, f := range r.Judged {
		p.Panels = append(p.Panels, soakPanel(f))
		about = append(about, f.Title()+": "+f.Sentence())
	}
	p.About = strings.Join(about, " ")
	return p.SVG(chart.Light)
}

// soakPanel draws one quantity.
func soakPanel(f torture.Judgement) chart.Panel {
	measured, verdict, _ := strings.Cut(f.Sentence(), ". ")
	title, trend := chart.Text, chart.Good
	if f.Grew {
		title, trend = chart.Alert, chart.Alert
	}
	return chart.Panel{
		Title: f.Title(), Ink: title, Shade: f.Line[0].At.Minutes(),
		Notes: []chart.Note{{Text: measured + ".", Ink: chart.Dim}, {Text: verdict, Ink: title}},
		X:     chart.Axis{Title: "minutes since the start", End: 0.01}, Y: chart.Axis{End: 1},
		Lines: []chart.Line{{Ink: measuredInk, Points: soakPoints(f.Points)}, {Ink: trend, Dash: trendDash, Points: soakPoints(f.Line[:])}},
	}
}

func soakPoints(points []torture.Point) []chart.Point {
	var drawn []chart.Point
	for _, p := range points {
		drawn = append(drawn, chart.Point{X: p.At.Minutes(), Y: p.Value})
	}
	return drawn
}
