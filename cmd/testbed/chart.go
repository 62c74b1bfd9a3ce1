package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/csi-attach-hub/csi-attach-hub/internal/soak"
)

const (
	chartColumns         = 2
	chartWide, chartHigh = 9 * vg.Inch, 2.2 * vg.Inch // of one chart
)

var (
	inkValue = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	inkTrend = color.RGBA{R: 0x20, G: 0x80, B: 0x40, A: 0xff}
	inkGrown = color.RGBA{R: 0xc0, G: 0x20, B: 0x20, A: 0xff}
)

// drawChart draws each quantity over time as SVG, with the line of its trend after the warm-up.
func drawChart(out io.Writer, findings []soak.Finding) error {
	rows := (len(findings) + chartColumns - 1) / chartColumns
	charts := make([][]*plot.Plot, rows)
	for i, f := range findings {
		chart, err := chartOf(f)
		if err != nil {
			return fmt.Errorf("draw %s: %w", f.Name, err)
		}
		charts[i/chartColumns] = append(charts[i/chartColumns], chart)
	}
	last := charts[rows-1]
	charts[rows-1] = append(last, make([]*plot.Plot, chartColumns-len(last))...)
	canvas := vgsvg.New(chartColumns*chartWide, vg.Length(rows)*chartHigh)
	tiles := draw.Tiles{Rows: rows, Cols: chartColumns, PadX: vg.Millimeter * 4, PadY: vg.Millimeter * 4,
		PadTop: vg.Millimeter * 2, PadBottom: vg.Millimeter * 2, PadLeft: vg.Millimeter * 2, PadRight: vg.Millimeter * 4}
	canvases := plot.Align(charts, tiles, draw.New(canvas))
	for i, row := range charts {
		for j, chart := range row {
			if chart != nil {
				chart.Draw(canvases[i][j])
			}
		}
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return fmt.Errorf("write SVG: %w", err)
	}
	_, err := svg.WriteTo(out)
	return err
}

// chartOf draws one quantity.
func chartOf(f soak.Finding) (*plot.Plot, error) {
	chart := plot.New()
	chart.BackgroundColor = color.White
	chart.Title.Text = f.Title()
	chart.X.Label.Text = "minutes"
	chart.Y.Min = 0
	values, err := plotter.NewLine(xys(f.Points))
	if err != nil {
		return nil, err
	}
	values.Color = inkValue
	trend, err := plotter.NewLine(xys(f.Line[:]))
	if err != nil {
		return nil, err
	}
	trend.Color, trend.Dashes = inkTrend, []vg.Length{vg.Points(4), vg.Points(3)}
	if f.Grew {
		trend.Color = inkGrown
		chart.Title.Text += fmt.Sprintf(": grew by %.2f, allowed is %.2f", f.Rise, f.Allowed)
		chart.Title.TextStyle.Color = inkGrown
	}
	chart.Add(plotter.NewGrid(), values, trend)
	chart.Y.Max = max(chart.Y.Max*1.1, 1)
	return chart, nil
}

func xys(points []soak.Point) plotter.XYs {
	xys := make(plotter.XYs, len(points))
	for i, p := range points {
		xys[i] = plotter.XY{X: p.At.Minutes(), Y: p.Value}
	}
	return xys
}
