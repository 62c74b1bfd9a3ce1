package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// attachment returns the VolumeAttachment of a PersistentVolume.
func attachment(volume string, attached bool) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		Spec:   storagev1.VolumeAttachmentSpec{Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status: storagev1.VolumeAttachmentStatus{Attached: attached},
	}
}

func TestClockTimesWhatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.reset(attached, 2)
		c.begin(volume{name: "a"})
		time.Sleep(time.Second)
		c.begin(volume{name: "b"})
		c.observe(nil, attachment("a", false))
		c.observe(nil, attachment("stranger", true))
		c.observe(attachment("b", false), attachment("b", true))
		time.Sleep(2 * time.Second)
		c.observe(attachment("a", false), attachment("a", true))
		time.Sleep(time.Second)
		c.observe(attachment("a", true), attachment("a", true))
		got, err := c.wait(t.Context())
		if want := []time.Duration{0, 3 * time.Second}; err != nil || got.elapsed != 3*time.Second || !slices.Equal(got.took, want) {
			t.Errorf("%v in %v, %v; want %v in 3s", got.took, got.elapsed, err, want)
		}

		c.reset(gone, 2)
		c.begin(volume{name: "a"})
		c.begin(volume{name: "b"})
		c.observe(attachment("a", true), attachment("a", false))
		c.observe(attachment("b", true), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.wait(ctx); err == nil || !strings.Contains(err.Error(), "2 volumes: 1 are ready") {
			t.Errorf("one is still there: %v", err)
		}
	})
}

func TestClockFollowsAPodsVolumeToItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.reset(reported, 1)
		c.begin(volume{name: "a"})
		time.Sleep(time.Second)
		c.observe(nil, attachment("a", false))
		time.Sleep(3 * time.Second)
		c.observe(nil, attachment("a", true))
		time.Sleep(4 * time.Second)
		node := &corev1.Node{}
		node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/driver^stranger"}, {Name: "kubernetes.io/csi/driver^a"}}
		c.observeNode(nil, node)
		got, err := c.wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := got.ways[0].way
		w[called] = w[created].Add(2 * time.Second)
		want := [...]time.Duration{time.Second, 2 * time.Second, time.Second, 4 * time.Second}
		if w.legs() != want {
			t.Errorf("legs %v, want %v", w.legs(), want)
		}
	})
}

func TestLegsAddUpWhenAWatchIsLate(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	for about, w := range map[string]way{
		"created seen after the call":      {at(0), at(3), at(2), at(4), at(5)},
		"attached seen after the node":     {at(0), at(1), at(2), at(9), at(5)},
		"attached not seen before the end": {at(0), at(1), at(2), {}, at(5)},
	} {
		var sum time.Duration
		for _, leg := range w.legs() {
			if sum += leg; leg < 0 {
				t.Errorf("%s: legs %v", about, w.legs())
			}
		}
		if sum != 5*time.Second {
			t.Errorf("%s: the legs %v take %v, want 5s", about, w.legs(), sum)
		}
	}
}

func TestRequestsThatAttachersMakeAreToldFromOthers(t *testing.T) {
	key := func(verb, resource, subresource string) testbed.RequestKey {
		return testbed.RequestKey{Verb: verb, Resource: resource, Subresource: subresource, Code: "200"}
	}
	before := counts{testbed.RequestCounts{key("PATCH", "volumeattachments", ""): 100}, calls{publish: 1}}
	after := counts{testbed.RequestCounts{
		key("PATCH", "volumeattachments", ""):       110,
		key("PATCH", "volumeattachments", "status"): 5,
		key("PUT", "persistentvolumes", ""):         1,
		key("POST", "volumeattachments", ""):        1000, // by this program
		key("DELETE", "volumeattachments", ""):      1000,
		key("POST", "persistentvolumes", ""):        1000,
		key("GET", "csinodes", ""):                  2,
		key("LIST", "volumeattachments", ""):        1,
		key("WATCH", "volumeattachments", ""):       7,
		key("GET", "leases", ""):                    50,
		key("PUT", "leases", ""):                    20,
		key("POST", "events", ""):                   3,
		key("GET", "", ""):                          9,
	}, calls{publish: 3, unpublish: 1}}
	want := work{calls: calls{publish: 2, unpublish: 1}, writes: 16, reads: 3}
	if got := after.since(before); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCallsThatNobodyNeedsCountToo(t *testing.T) {
	took := timing{elapsed: time.Second, took: make([]time.Duration, 2)}
	f := burstFigures(phase{timing: took, work: work{calls: calls{publish: 2, unpublish: 1}}, plane: 0.01},
		phase{timing: took, work: work{calls: calls{publish: 2, unpublish: 2}}, plane: 0.03})
	if f[AttachCalls] != 1.5 || f[DetachCalls] != 2 || math.Abs(f[PlaneCPU]-10) > 1e-9 {
		t.Errorf("%v calls of an attach, %v of a detach, want 1.5 and 2; %v CPU seconds of the control plane, want 10", f[AttachCalls], f[DetachCalls], f[PlaneCPU])
	}
}

func TestHubAndBaselineAreNeighboursAndEachIsTheFirstInEverySecondRound(t *testing.T) {
	for _, tt := range []struct {
		c    Case
		want []string
	}{
		{Case{SidecarRounds: 1}, []string{"hub, baseline, csi-attacher, csi-attacher tuned", "baseline, hub", "hub, baseline"}},
		{Case{SidecarRounds: 2, alone: true, tunedOnly: true}, []string{"hub, csi-attacher tuned", "hub, csi-attacher tuned", "hub"}},
	} {
		for round, want := range tt.want {
			var names []string
			s := &stage{options: options{sidecar: "path"}, c: tt.c}
			for _, c := range s.competitors(round) {
				names = append(names, c.name)
			}
			if got := strings.Join(names, ", "); got != want {
				t.Errorf("round %d: %s, want %s", round, got, want)
			}
		}
	}
}

// The machine was slow in the second round, and the baseline is missing in the last one.
var slowed = samples{
	{hubName, 1, Figures{AttachRate: 90, AttachWrites: 2.004, ResidentEnd: 70e6}}, {baselineName, 1, Figures{AttachRate: 100, AttachWrites: 2}},
	{baselineName, 2, Figures{AttachRate: 10}}, {hubName, 2, Figures{AttachRate: 8}},
	{hubName, 3, Figures{AttachRate: 70}}, {baselineName, 3, Figures{AttachRate: 100}},
	{hubName, 4, Figures{AttachRate: 1}},
}

func TestRatioComparesWithinEachRound(t *testing.T) {
	if got, ok := slowed.ratio(AttachRate); !ok || got.String() != "0.80 (0.70–0.90)" || got.pairs != 3 {
		t.Errorf("ratio %v %v, want 0.8, from 0.7 to 0.9", got, ok)
	}
	if got, ok := slowed.ratio(Reads); ok {
		t.Errorf("ratio of what was not measured: %v", got)
	}
	if got := medians([]Figures{{AttachRate: 1, CPU: 8}, {AttachRate: 3}, {AttachRate: 2}}); cmp.Diff(Figures{AttachRate: 2, CPU: 8}, got) != "" {
		t.Errorf("medians %v", got)
	}
}

func TestTargetIsMetOnItsSideOfTheValue(t *testing.T) {
	for _, tt := range []struct {
		target target
		want   string
	}{
		{atLeast(AttachRate, 0.80).ofBaseline(), "attaches per second at least 0.80 of the baseline: 0.80, met"},
		{atLeast(AttachRate, 0.81).ofBaseline(), "attaches per second at least 0.81 of the baseline: 0.80, **missed**"},
		{atLeast(AttachRate, 86), "attaches per second at least 86: 39, **missed**"},
		{atMost(ResidentEnd, 70e6), "memory at the end (RSS) at most 70.0 MB: 70.0 MB, met"},
		{atMost(ResidentEnd, 69e6), "memory at the end (RSS) at most 69.0 MB: 70.0 MB, **missed**"},
		{exactly(AttachWrites, 2), "API writes per attach exactly 2.00: 2.00, met"},
		{exactly(AttachWrites, 1.99), "API writes per attach exactly 1.99: 2.00, **missed**"},
	} {
		if got, ok := tt.target.verdict(slowed); !ok || got != tt.want {
			t.Errorf("got  %q %v\nwant %q", got, ok, tt.want)
		}
	}
	if got, ok := exactly(Reads, 0).verdict(slowed); ok {
		t.Errorf("what was not measured is judged: %v", got)
	}
}

func TestReportIsKeptAndWrittenBetweenTheMarkers(t *testing.T) {
	dir := t.TempDir()
	path, json := filepath.Join(dir, "BENCHMARKS.md"), filepath.Join(dir, "new", "bench.json")
	if r, err := readReport(json); err != nil || len(r) > 0 {
		t.Errorf("a report that does not exist: %v, %v", r, err)
	}
	r := report{"10x50": {Date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Took: "1m", Machine: "2 cores", Command: "make bench", Samples: slowed}}
	if err := r.write(json); err != nil {
		t.Fatal(err)
	}
	read, err := readReport(json)
	if diff := cmp.Diff(r, read); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	const frame = "before\n<!-- bench pictures -->\nold\n<!-- /bench pictures -->\nbetween\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n"
	if err := os.WriteFile(path, []byte(frame), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time replaces what the first one wrote
		if err := read.writeMarkdown(path); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before\n<!-- bench pictures -->\n\n<picture>", "src=\"pictures/bench-light.svg\">", "between\n<!-- bench -->\n\n|case|figure|", "<!-- /bench -->\nafter\n",
		"|10x50|attaches per second|39|0.80 (0.70–0.90)|-|-|at least 0.95 of the baseline, **missed**|\n",
		"1 of 1 exact targets are met (writes, calls, reads, leases).\n\nMeasured on 2026-01-02: 2 cores.\n",
	} {
		if strings.Count(string(data), want) != 1 {
			t.Errorf("not once in the file: %q\n%s", want, data)
		}
	}
	for _, theme := range []string{"light", "dark"} {
		picture, err := os.ReadFile(filepath.Join(dir, "pictures", "bench-"+theme+".svg"))
		if err != nil || !strings.Contains(string(picture), "attaches per second, 10x50: hub 39, baseline 100.") {
			t.Errorf("picture for %s pages: %v, %s", theme, err, picture)
		}
	}
	if err := os.WriteFile(path, []byte("no markers\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := read.writeMarkdown(path); err == nil {
		t.Error("a file without markers is written")
	}
}

func TestUnknownCaseIsAnError(t *testing.T) {
	c := newCommand()
	c.SetArgs([]string{"10x51"})
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "10x51") {
		t.Errorf("error %v", err)
	}
}

func TestPlaneCPUNeedsAChild(t *testing.T) {
	if cpu, err := planeCPU(os.Getpid()); err == nil {
		t.Errorf("the CPU time of a control plane without kube-apiserver is %v, and no error", cpu)
	}
}
