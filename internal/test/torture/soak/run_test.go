package soak

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{})) }

func TestShortRunGivesSamplesAndAVerdict(t *testing.T) {
	hub, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r, err := Run(t.Context(), Options{Duration: 10 * time.Second, Every: 500 * time.Millisecond, Drivers: 3, Volumes: 5,
		Latency: 100 * time.Millisecond, Hub: hub, Dir: testbed.ShortTempDir(t), Out: &out})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	first, last := r.Samples[0], r.Samples[len(r.Samples)-1]
	if len(r.Samples) < leastSamples || last.At < 10*time.Second || last.Attached <= first.Attached || last.Detached == 0 {
		t.Errorf("%d samples, the first %+v, the last %+v: want some of a run of 10 s with attaches and detaches", len(r.Samples), first, last)
	}
	for _, s := range r.Samples {
		if s.Goroutines == 0 || s.RSS == 0 || s.Heap == 0 || s.Descriptors == 0 {
			t.Fatalf("sample %+v: want no zeros", s)
		}
	}
	text := r.Text()
	for _, q := range quantities {
		if !strings.Contains(text, q.Name) {
			t.Errorf("%s is not in the report:\n%s", q.Name, text)
		}
	}
}

func TestGrowthIsInTheReport(t *testing.T) {
	samples := heapOver(func(minutes float64) float64 { return 30 + minutes })
	r := &Report{Samples: samples, Findings: Judge(samples)}
	if grew := r.Grew(); len(grew) != 1 || grew[0] != "heap after GC" {
		t.Errorf("%v grew, want the heap", grew)
	}
	if text := r.Text(); strings.Count(text, "GREW") != 1 {
		t.Errorf("want one verdict of growth:\n%s", text)
	}
}

func TestOptionsThatMakeNoRunAreRefused(t *testing.T) {
	good := Options{Duration: time.Minute, Every: time.Second, Drivers: 1, Volumes: 1, Hub: "hub", Dir: "dir", Out: io.Discard}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no hub":          func(o *Options) { o.Hub = "" },
		"no driver":       func(o *Options) { o.Drivers = 0 },
		"no volume":       func(o *Options) { o.Volumes = 0 },
		"no interval":     func(o *Options) { o.Every = 0 },
		"too few samples": func(o *Options) { o.Every = 10 * time.Second },
	} {
		o := good
		spoil(&o)
		if err := o.check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
