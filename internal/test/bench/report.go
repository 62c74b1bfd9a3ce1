package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/bench/chart"
)

// report has the results of cases by name.
type report map[string]result

// result is what one case has measured.
type result struct {
	Date    time.Time `json:"date"`
	Took    string    `json:"took"` // the whole case
	Machine string    `json:"machine"`
	Command string    `json:"command"`
	Samples samples   `json:"samples"`
}

// thisMachine describes this machine, and leaves out what it cannot read.
func thisMachine() string {
	text := fmt.Sprintf("%d cores", runtime.NumCPU())
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if processors, err := fs.CPUInfo(); err == nil && len(processors) > 0 {
			text += " (" + processors[0].ModelName + ")"
		}
	}
	return text + ", " + runtime.Version()
}

// readReport reads the file of write. A missing file is an empty report.
func readReport(path string) (report, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return report{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	r := report{}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read report %s: %w", path, err)
	}
	return r, nil
}

// write writes the report into a file, whose folder it makes if it does not exist.
func (r report) write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// measured returns the cases that the report has.
func (r report) measured() []Case {
	return slices.DeleteFunc(cases(), func(c Case) bool { return len(r[c.Name].Samples) == 0 })
}

// writeMarkdown writes the report as a table and as pictures between the markers of a Markdown file, and the pictures into the folder
// "pictures" beside it.
func (r report) writeMarkdown(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	p := r.picture()
	show := fmt.Sprintf("\n<picture>\n  <source media=\"(prefers-color-scheme: dark)\" srcset=\"%s\">\n  <img alt=\"%s; the table has the figures\" src=\"%s\">\n</picture>\n",
		pictureFile(chart.Dark), p.Title, pictureFile(chart.Light))
	text, err := between(string(old), "bench", "\n"+r.summary()+"\n")
	if err == nil {
		text, err = between(text, "bench pictures", show+"\n")
	}
	if err != nil {
		return fmt.Errorf("write report: %s %w", path, err)
	}
	for _, theme := range []chart.Theme{chart.Light, chart.Dark} {
		file := filepath.Join(filepath.Dir(path), pictureFile(theme))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, p.SVG(theme), 0o644)); err != nil {
			return fmt.Errorf("write picture: %w", err)
		}
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// pictureFile returns the path of the picture, from the folder of the Markdown file.
func pictureFile(theme chart.Theme) string { return "pictures/bench-" + theme.Name + ".svg" }

// between replaces the text between two markers.
func between(old, marker, text string) (string, error) {
	begin, end := fmt.Sprintf("<!-- %s -->\n", marker), fmt.Sprintf("<!-- /%s -->\n", marker)
	before, rest, begins := strings.Cut(old, begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return "", fmt.Errorf("has no lines %q and %q", begin, end)
	}
	return before + begin + text + end + after, nil
}

// drawn are the competitors in the order of their columns and inks.
var drawn = []string{hubName, baselineName, sidecarName, tunedSidecarName}

// barFigures are the figures of the picture.
var barFigures = []Figure{AttachRate, DetachRate, AttachP99, CPU, PlaneCPU, ResidentPeak, PodP50}

// picture has a panel for each of barFigures, with a bar for each competitor of a case in which there are several.
func (r report) picture() chart.Picture {
	p := chart.Picture{Title: "csi-attach-hub beside the baseline and csi-attacher", Note: "Medians of the rounds of each case."}
	var about []string
	for _, f := range barFigures {
		panel := chart.Panel{Title: string(f)}
		if f == ResidentPeak {
			panel.Show = func(v float64) string { return chart.Number(v/1e6) + " MB" }
		}
		for _, c := range r.measured() {
			if group, texts := r[c.Name].bars(f); len(group.Bars) > 1 {
				group.Name = c.Name
				panel.Bars = append(panel.Bars, group)
				about = append(about, fmt.Sprintf("%s, %s: %s.", f, c.Name, strings.Join(texts, ", ")))
			}
		}
		if len(panel.Bars) > 0 {
			p.Panels = append(p.Panels, panel)
		}
	}
	for i, name := range drawn {
		p.Legend = append(p.Legend, chart.Key{Name: name, Ink: chart.Data + chart.Ink(i)})
	}
	p.About = strings.Join(about, " ")
	return p
}

// bars returns a bar, and a text, for each competitor with the figure.
func (r result) bars(f Figure) (group chart.Group, texts []string) {
	for i, name := range drawn {
		value, measured := r.Samples.median(name, f)
		if !measured {
			continue
		}
		bar := chart.Bar{Value: value, Ink: chart.Data + chart.Ink(i), Text: f.text(value)}
		group.Bars, texts = append(group.Bars, bar), append(texts, name+" "+bar.Text)
	}
	return group, texts
}
