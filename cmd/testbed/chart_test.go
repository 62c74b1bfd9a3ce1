package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// update rewrites the golden picture.
var update = flag.Bool("update", false, "write testdata/soak.svg")

// reportOf is that of a run of 20 minutes with so much heap, in MiB, after so many minutes.
func reportOf(heap func(minutes float64) float64) *torture.SoakReport {
	r := &torture.SoakReport{
		Options: torture.SoakOptions{Options: torture.Options{Drivers: 5}, Volumes: 20},
		Version: "csi-attach-hub v1.2.0 go1.26.0 linux/amd64",
		Began:   time.Date(2026, 11, 22, 8, 30, 0, 0, time.UTC),
	}
	for i := range 41 {
		at := time.Duration(i) * 30 * time.Second
		v := testbed.Vitals{
			Heap: int64(heap(at.Minutes()) * (1 << 20)), RSS: 60 << 20, Goroutines: 200 + i%3, Descriptors: 20,
			Queued: i % 5, Attached: 600 * i, Detached: 598 * i, Failed: i, CPU: time.Duration(i) * 9 * time.Second,
		}
		r.Samples = append(r.Samples, torture.Sample{At: at, Vitals: v})
	}
	r.Judged = torture.Judge(r.Samples)
	return r
}

// The picture says what it is of, and why the hub is judged as it is. Look at it after a change:
// chromium --headless --screenshot cmd/testbed/testdata/soak.svg.
func TestPictureOfASoakIsTheGoldenOne(t *testing.T) {
	const path = "testdata/soak.svg"
	r := reportOf(func(minutes float64) float64 { return 30 + minutes })
	svg := drawSoak(r)
	if *update {
		if err := os.WriteFile(path, svg, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(svg)); diff != "" {
		t.Errorf("the picture has changed; look at it, and run this test with -update:\n%s", diff)
	}
}

func TestEachQuantityIsDrawnWithItsTrendAndJudgement(t *testing.T) {
	r := reportOf(func(float64) float64 { return 30 })
	svg := drawSoak(r)
	texts, lines := "", 0
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("invalid XML in the SVG: %v", err)
		}
		switch token := token.(type) {
		case xml.CharData:
			texts += string(token) + " "
		case xml.StartElement:
			if token.Name.Local == "path" {
				lines++
			}
		}
	}
	for _, f := range r.Judged {
		for _, want := range strings.SplitAfter(f.Sentence(), "hour.") {
			if !strings.Contains(texts, f.Title()) || !strings.Contains(texts, strings.TrimSpace(want)) {
				t.Errorf("%s with %q is not in the SVG", f.Title(), want)
			}
		}
	}
	for _, want := range []string{"csi-attach-hub does not grow under load", r.Version, "2026-11-22 08:30 UTC", r.Load(), "measured", "warm-up"} {
		if !strings.Contains(texts, want) {
			t.Errorf("%q is not in the SVG", want)
		}
	}
	if lines < 2*len(r.Judged) {
		t.Errorf("%d lines in the SVG, want two for each of %d quantities", lines, len(r.Judged))
	}
}
