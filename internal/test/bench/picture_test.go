package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/internal/chart"
)

// drawnResult has all that pictures show.
func drawnResult() Result {
	r := Result{Name: "10x50", About: "ten drivers", Rounds: 2}
	for i, name := range drawn {
		value := float64(100 * (i + 1))
		for round := range 2 {
			r.Samples = append(r.Samples, Sample{name, round + 1, Figures{AttachRate: value + float64(round), DetachRate: value, CPU: 0.5 + value, ResidentEnd: value * 1e6}})
		}
		for _, title := range []string{attachChart, detachChart} {
			r.Series = append(r.Series, Series{Chart: title, Name: name, X: "percentile", Y: "seconds", Points: []Point{{1, 0.06}, {50, 0.5}, {100, float64(1 + 7*i)}}})
		}
	}
	for _, name := range []string{hubName, baselineName} {
		r.Series = append(r.Series, Series{
			Chart: "memory over PersistentVolumes", Name: name, X: "PersistentVolumes", Y: "MB",
			Points: []Point{{1000, 50}, {50_000, 90}, {100_000, 130}}, Fit: &Fit{"kB per PersistentVolume", 1000},
		})
		r.Stacks = append(r.Stacks, Stack{Chart: "from Pod to attached", Name: name, X: "milliseconds", Parts: []Part{{"waits <for> a worker", 20}, {"driver's call", 50}}})
	}
	r.judge(nil)
	return r
}

// checkSVG checks what every picture must be, and returns the texts that are seen.
func checkSVG(t *testing.T, svg []byte) string {
	t.Helper()
	if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") || strings.Contains(string(svg), "<script") {
		t.Errorf("the picture has NaN, Inf or a script")
	}
	number := func(e xml.StartElement, name string) float64 {
		for _, a := range e.Attr {
			if a.Name.Local == name {
				if v, err := strconv.ParseFloat(a.Value, 64); err == nil {
					return v
				}
				return 0
			}
		}
		return 0
	}
	attribute := func(e xml.StartElement, name string) string {
		for _, a := range e.Attr {
			if a.Name.Local == name {
				return a.Value
			}
		}
		return ""
	}
	var texts strings.Builder
	var width, height float64
	var inside xml.StartElement
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("invalid XML: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inside = token
			if token.Name.Local == "svg" {
				width, height = number(token, "width"), number(token, "height")
			}
		case xml.CharData:
			text := strings.TrimSpace(string(token))
			if text == "" || inside.Name.Local != "text" {
				break // title and desc are not seen
			}
			texts.WriteString(text + "\n")
			x, y, wide := number(inside, "x"), number(inside, "y"), 0.55*number(inside, "font-size")*float64(utf8.RuneCountInString(text))
			switch attribute(inside, "text-anchor") {
			case "middle":
				x -= wide / 2
			case "end":
				x -= wide
			}
			if x < 0 || x+wide > width || y < 8 || y > height-2 {
				t.Errorf("%q is not within the picture of %.0f × %.0f: it is at %.0f, %.0f and %.0f wide", text, width, height, x, y, wide)
			}
		}
	}
	return texts.String()
}

func TestPicturesShowAllThatWasMeasured(t *testing.T) {
	const about = "attaches per second, 10x50: hub 100, floor 200, csi-attacher 300, csi-attacher tuned 400."
	pictures := Report{Cases: []Result{drawnResult(), {Name: "idle", Medians: map[string]Figures{hubName: {ResidentIdle: 5e7}}}}}.pictures()
	want := map[string][]string{
		"bursts":  append([]string{"attaches per second", "detaches per second", "CPU seconds per 1000 operations", "memory at the end (RSS)", "10x50", "100", "400.0 MB"}, drawn...),
		"latency": append([]string{"10x50: attach latency", "10x50: detach latency", "percentile", "100 ms", "10 s"}, drawn...),
		"10x50": {"memory over PersistentVolumes", "MB", "100,000", hubName, baselineName, "hub: 0.81 kB per PersistentVolume",
			"from Pod to attached", "waits <for> a worker", "driver's call", "milliseconds", "70"},
	}
	for _, p := range pictures {
		lines, known := want[p.name]
		if !known {
			t.Errorf("%s is a picture of nothing", p.name)
		}
		delete(want, p.name)
		for _, theme := range []chart.Theme{chart.Light, chart.Dark} {
			texts := checkSVG(t, p.SVG(theme))
			for _, line := range lines {
				if !strings.Contains(texts, line) {
					t.Errorf("%s, %s: %q is not in the picture", p.name, theme.Name, line)
				}
			}
		}
	}
	if !strings.Contains(pictures[0].About, about) {
		t.Errorf("%q does not have %q for screen readers", pictures[0].About, about)
	}
	for name := range want {
		t.Errorf("there is no picture %s", name)
	}
}

func TestPicturesAreFilesBesideTheMarkdown(t *testing.T) {
	folder := t.TempDir()
	stale := filepath.Join(folder, picturesFolder, "bench-gone-dark.svg")
	other := filepath.Join(folder, picturesFolder, "overview-dark.svg")
	if err := os.Mkdir(filepath.Dir(stale), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{stale, other} {
		if err := os.WriteFile(path, []byte("<svg/>"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(folder, "bench.md")
	if err := (Report{Cases: []Result{drawnResult()}}).WriteMarkdown(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bursts", "latency", "10x50"} {
		for _, theme := range []string{"light", "dark"} {
			file := picturesFolder + "/bench-" + name + "-" + theme + ".svg"
			if _, err := os.Stat(filepath.Join(folder, file)); err != nil || !strings.Contains(string(text), `"`+file+`"`) {
				t.Errorf("%s is not written (%v), or the Markdown does not show it", file, err)
			}
		}
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("a picture of an earlier report is left")
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another picture is removed: %v", err)
	}
}

// `make charts` writes both again from the report.
func TestTheDocumentShowsItsReport(t *testing.T) {
	deploy := filepath.Join("..", "..", "deploy")
	r, err := ReadReport(filepath.Join(deploy, picturesFolder, "bench.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) == 0 {
		t.Skip("there is no report")
	}
	folder := t.TempDir()
	want, err := os.ReadFile(filepath.Join(deploy, "BENCHMARKS.md"))
	if err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(folder, "BENCHMARKS.md")
	if err := os.WriteFile(written, want, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteMarkdown(written); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, picturesFolder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, written) {
		name, err := filepath.Rel(folder, file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(deploy, name))
		if diff := cmp.Diff(string(want), string(got)); err != nil || diff != "" {
			t.Errorf("deploy/%s is not of the report deploy/pictures/bench.json: run make charts (%v)\n%s", name, err, diff)
		}
	}
}

// With WRITE_PICTURES=folder, look at them.
func TestExamplesOfPicturesCanBeWritten(t *testing.T) {
	folder := os.Getenv("WRITE_PICTURES")
	if folder == "" {
		t.Skip("WRITE_PICTURES is not set")
	}
	if err := writePictures(folder, Report{Cases: []Result{drawnResult()}}.pictures()); err != nil {
		t.Fatal(err)
	}
}
