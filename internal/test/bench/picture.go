package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/chart"
)

// picture is a drawing of a report.
type picture struct {
	name string // part of its file's name
	chart.Picture
}

// barFigures are the figures of the picture of all bursts.
var barFigures = []Figure{AttachRate, DetachRate, CPU, PlaneCPU, ResidentEnd, ResidentPeak}

// pictures returns the drawings of a report: the bursts of all cases, their latencies, and what cases measure over
// something else. It leaves out what was not measured.
func (r Report) pictures() []picture {
	all := []picture{r.burstPicture(), r.latencyPicture()}
	for _, c := range r.Cases {
		all = append(all, c.picture())
	}
	return slices.DeleteFunc(all, func(p picture) bool { return len(p.Panels) == 0 })
}

// burstPicture has a panel for each of barFigures, with a bar for each case and competitor.
func (r Report) burstPicture() picture {
	p := picture{"bursts", chart.Picture{Title: "Throughput and cost of bursts", Columns: 2}}
	names := &legend{}
	var about []string
	for _, f := range barFigures {
		panel := chart.Panel{Title: descriptionOf(f).title, X: chart.Axis{Show: axisText(f)}}
		for _, c := range r.Cases {
			if _, measured := c.Medians[hubName][AttachRate]; !measured || !c.comparable(hubName) {
				continue
			}
			if group := c.bars(f, names); len(group.Bars) > 0 {
				panel.Bars = append(panel.Bars, group)
				about = append(about, fmt.Sprintf("%s, %s: %s.", panel.Title, c.Name, c.figureText(f)))
			}
		}
		if len(panel.Bars) > 0 {
			p.Panels = append(p.Panels, panel)
		}
	}
	p.Notes = []string{"Medians of the rounds of each case. The whisker shows the quartiles."}
	p.About, p.Legend = strings.Join(about, " "), names.areas()
	return p
}

// bars returns a bar for each competitor with the figure.
func (r Result) bars(f Figure, names *legend) chart.Group {
	group := chart.Group{Name: r.Name}
	for _, name := range r.Samples.competitors() {
		value, measured := r.Medians[name][f]
		if !measured {
			continue
		}
		bar := chart.Bar{Parts: []chart.Part{{Value: value, Ink: names.ink(name)}}, Text: descriptionOf(f).show(value)}
		var rounds []float64
		for _, figures := range r.Samples.of(name) {
			if v, ok := figures[f]; ok {
				rounds = append(rounds, v)
			}
		}
		if len(rounds) > 1 {
			bar.Low, bar.High = quartiles(rounds)
		}
		group.Bars = append(group.Bars, bar)
	}
	return group
}

// figureText returns the figure of all competitors as text.
func (r Result) figureText(f Figure) string {
	var values []string
	for _, name := range r.Samples.competitors() {
		if value, measured := r.Medians[name][f]; measured {
			values = append(values, name+" "+descriptionOf(f).show(value))
		}
	}
	return strings.Join(values, ", ")
}

// latencyPicture has the latencies of all cases with bursts.
func (r Report) latencyPicture() picture {
	p := picture{"latency", chart.Picture{Title: "Latencies of bursts", Columns: 2}}
	p.Notes = []string{"From the request for a VolumeAttachment until it is attached, or from its deletion until it is gone. All requests come at " +
		"once, so most of a latency is the wait for the attaches before it. Medians of the rounds."}
	names := &legend{}
	for _, c := range r.Cases {
		if !c.comparable(hubName) {
			continue
		}
		for _, panel := range linePanels(c.Series, isLatency, names) {
			panel.Title = c.Name + ": " + panel.Title
			panel.Y = chart.Axis{Title: "logarithmic", Log: true, Show: seconds}
			p.Panels = append(p.Panels, panel)
		}
		p.About += c.seriesText(isLatency)
	}
	p.Legend = names.lines()
	return p
}

// picture has what the case measured over something else, and its divided bars.
func (r Result) picture() picture {
	p := picture{r.Name, chart.Picture{Title: r.Name, Notes: []string{r.About}, Columns: 2}}
	lines, parts := &legend{}, &legend{}
	others := func(s Series) bool { return !isLatency(s) }
	p.Panels = linePanels(r.Series, others, lines)
	p.About = r.seriesText(others)
	stacks := stackPanels(r.Stacks, parts)
	p.Panels = append(p.Panels, stacks...)
	if len(stacks) > 0 || len(p.Panels) == 1 {
		p.Columns = 1 // bars have long names, and a single panel has the width for itself
	}
	for _, s := range r.Stacks {
		p.About += fmt.Sprintf("%s, %s:", s.Chart, s.Name)
		for _, part := range s.Parts {
			p.About += fmt.Sprintf(" %s %s,", part.Name, chart.Number(part.Value))
		}
		p.About += " " + s.X + ". "
	}
	p.Legend = append(lines.lines(), parts.areas()...)
	return p
}

// linePanels returns a panel for each chart of the series that are wanted.
func linePanels(series []Series, wanted func(Series) bool, names *legend) []chart.Panel {
	var panels []chart.Panel
	for _, s := range series {
		if !wanted(s) {
			continue
		}
		i := slices.IndexFunc(panels, func(p chart.Panel) bool { return p.Title == s.Chart })
		if i < 0 {
			i = len(panels)
			panels = append(panels, chart.Panel{Title: s.Chart, X: chart.Axis{Title: s.X}, Y: chart.Axis{Title: s.Y}})
		}
		p, line := &panels[i], chart.Line{Ink: names.ink(s.Name), Dash: names.dash(s.Name)}
		for _, point := range s.Points {
			line.Points = append(line.Points, chart.Point(point))
		}
		if s.Fit == nil || len(s.Points) == 0 {
			p.Lines = append(p.Lines, line)
			continue
		}
		// The straight line stands for the points, which are dots beside it.
		base, slope := fit(s.Points)
		right := s.Points[len(s.Points)-1].X
		line.Dots = true
		p.Lines = append(p.Lines, line, chart.Line{Ink: line.Ink, Dash: "1 4", Points: []chart.Point{{X: 0, Y: base}, {X: right, Y: base + slope*right}}})
		p.Notes = append(p.Notes, chart.Note{Text: fmt.Sprintf("%s: %.2f %s", s.Name, slope*s.Fit.Factor, s.Fit.Unit), Ink: line.Ink})
	}
	return panels
}

// seriesText describes the series that are wanted by their first, middle and last points.
func (r Result) seriesText(wanted func(Series) bool) string {
	var b strings.Builder
	for _, s := range r.Series {
		if n := len(s.Points); n > 0 && wanted(s) {
			fmt.Fprintf(&b, "%s, %s, %s: %s over %s:", r.Name, s.Chart, s.Name, s.Y, s.X)
			for _, i := range slices.Compact([]int{0, n / 2, n - 1}) {
				fmt.Fprintf(&b, " %s at %s,", chart.Number(s.Points[i].Y), chart.Number(s.Points[i].X))
			}
			b.WriteString(" in medians. ")
		}
	}
	return b.String()
}

// stackPanels returns a panel for each chart of the stacks.
func stackPanels(stacks []Stack, names *legend) []chart.Panel {
	var panels []chart.Panel
	for _, s := range stacks {
		i := slices.IndexFunc(panels, func(p chart.Panel) bool { return p.Title == s.Chart })
		if i < 0 {
			i = len(panels)
			panels = append(panels, chart.Panel{Title: s.Chart, X: chart.Axis{Title: s.X}})
		}
		bar, sum := chart.Bar{}, 0.0
		for _, part := range s.Parts {
			bar.Parts = append(bar.Parts, chart.Part{Value: part.Value, Ink: names.ink(part.Name)})
			sum += part.Value
		}
		bar.Text = hundredths(sum)
		panels[i].Bars = append(panels[i].Bars, chart.Group{Name: s.Name, Bars: []chart.Bar{bar}})
	}
	return panels
}
