package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/soak"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// judgedHeap is what is found of a run of 20 minutes with so much heap, in MiB, after so many
// minutes.
func judgedHeap(heap func(minutes float64) float64) []soak.Finding {
	var samples []soak.Sample
	for at := time.Duration(0); at <= 20*time.Minute; at += 5 * time.Second {
		samples = append(samples, soak.Sample{At: at, Vitals: testbed.Vitals{Heap: int64(heap(at.Minutes()) * (1 << 20))}})
	}
	return soak.Judge(samples)
}

func TestEachQuantityIsDrawnWithItsTrend(t *testing.T) {
	findings := judgedHeap(func(float64) float64 { return 30 })
	var svg bytes.Buffer
	if err := drawChart(&svg, findings); err != nil {
		t.Fatal(err)
	}
	texts, lines := "", 0
	for d := xml.NewDecoder(bytes.NewReader(svg.Bytes())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the SVG is no XML: %v", err)
		}
		switch token := token.(type) {
		case xml.CharData:
			texts += string(token)
		case xml.StartElement:
			if token.Name.Local == "path" {
				lines++
			}
		}
	}
	for _, f := range findings {
		if !strings.Contains(texts, f.Title()) {
			t.Errorf("%s is not in the SVG", f.Title())
		}
	}
	if lines < 2*len(findings) {
		t.Errorf("%d lines in the SVG, want two for each of %d quantities", lines, len(findings))
	}
}

func TestGrowthIsInTheDrawing(t *testing.T) {
	var svg bytes.Buffer
	err := drawChart(&svg, judgedHeap(func(minutes float64) float64 { return 30 + minutes }))
	if err != nil || !strings.Contains(svg.String(), "grew by") {
		t.Errorf("the growth is not in the drawing, error %v", err)
	}
}
