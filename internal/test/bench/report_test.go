package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func exampleResult() Result {
	r := Result{
		Name: "10x50", About: "ten drivers", Date: time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC), Took: "1m0s",
		Machine: Machine{Cores: 2, Processor: "abacus", MemoryBytes: 8 << 30, Kernel: "6.1", Go: "go1.26"},
		Command: "make bench", Workers: 100, Rounds: 2,
		Samples: Samples{
			{hubName, 1, Figures{AttachRate: 90, AttachP99: 0.75, HeapEnd: 12.5e6, Speed: 500}}, {baselineName, 1, Figures{AttachRate: 100, AttachP99: 1.5}},
			{hubName, 2, Figures{AttachRate: 70, AttachP99: 0.75, HeapEnd: 12.5e6}}, {baselineName, 2, Figures{AttachRate: 100, AttachP99: 1.5, Speed: 600}},
		},
	}
	r.judge([]Target{AtLeast(AttachRate, 0.85).OfBaseline(), AtMost(HeapEnd, 20e6)})
	return r
}

func TestTableForATerminal(t *testing.T) {
	want := `10x50: ten drivers
2026-11-21, make bench, medians of 2 rounds, hub / floor that of each round's ratio (and the quartiles), in 1m0s, machine's speed 500 to 600 MB/s (means of turns), hub with workers: 100, 2 cores (abacus), 8 GiB, Linux 6.1, go1.26
                                         hub       hub / floor   floor
  attaches per second                     80  0.80 (0.70–0.90)     100
  attach p99                          750 ms  0.50 (0.50–0.50)  1.50 s
  heap in use at the end             12.5 MB                 -       -
  speed of the machine, MB/s hashed      500                 -     600
  MISSED  attaches per second at least 0.85 of the floor: 0.80
  met     heap in use at the end at most 20.0 MB: 12.5 MB
`
	if diff := cmp.Diff(want, Report{Cases: []Result{exampleResult()}}.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestMarkdownIsPutBetweenTheMarkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	const frame = "# Title\n<!-- bench -->\n%<!-- /bench -->\nthe rest\n"
	if err := os.WriteFile(path, []byte(strings.Replace(frame, "%", "old\n", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (Report{Cases: []Result{exampleResult()}}).WriteMarkdown(path); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(frame, "%", `
**10x50**: ten drivers.
2026-11-21, `+"`make bench`"+`, medians of 2 rounds, hub / floor that of each round's ratio (and the quartiles), in 1m0s, machine's speed 500 to 600 MB/s (means of turns), hub with workers: 100: 2 cores (abacus), 8 GiB, Linux 6.1, go1.26.

|  | hub | hub / floor | floor |
|---|--:|--:|--:|
| attaches per second | 80 | 0.80 (0.70–0.90) | 100 |
| attach p99 | 750 ms | 0.50 (0.50–0.50) | 1.50 s |
| speed of the machine, MB/s hashed | 500 | - | 600 |

- attaches per second at least 0.85 of the floor: 0.80, **missed**
- heap in use at the end at most 20.0 MB: 12.5 MB, met

`, 1)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestMarkdownIsAFileOfItsOwnIfThereIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.md")
	r := Report{Cases: []Result{exampleResult()}}
	for range 2 {
		if err := r.WriteMarkdown(path); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != marked(picturesMarker, pictureMarkdown(r.pictures()))+"\n"+marked(tablesMarker, r.Markdown()) {
			t.Errorf("%v\n%s", err, got)
		}
	}
}

func TestAFileWithoutMarkersIsNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(path, []byte("# Title\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (Report{Cases: []Result{exampleResult()}}).WriteMarkdown(path); err == nil || !strings.Contains(err.Error(), "<!-- bench -->") {
		t.Errorf("want an error that names the markers, got %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "# Title\n" {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestReportKeepsResultsOfOtherCases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")
	before, err := ReadReport(path)
	if err != nil || len(before.Cases) != 0 {
		t.Fatalf("a file that is not there: %v %v", before, err)
	}
	old := exampleResult()
	last := Result{Name: "idle", Command: "old"}
	first := Report{Cases: []Result{last, old}}
	if err := first.WriteJSON(path); err != nil {
		t.Fatal(err)
	}
	if before, err = ReadReport(path); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, before); diff != "" {
		t.Errorf("read otherwise than written: %s", diff)
	}
	newer := exampleResult()
	newer.Command = "new"
	if diff := cmp.Diff(Report{Cases: []Result{newer, last}}, before.With(Report{Cases: []Result{newer}})); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownCaseIsNamedWithTheKnownOnes(t *testing.T) {
	_, err := Options{Cases: []string{"10x50", "nosuch"}}.chosen()
	if err == nil || !strings.Contains(err.Error(), `no case "nosuch": choose from 10x50, `) {
		t.Errorf("%v", err)
	}
	chosen, err := Options{Cases: []string{"idle", "10x50"}}.chosen()
	if err != nil || len(chosen) != 2 || chosen[0].Name != "10x50" {
		t.Errorf("%v %v", chosen, err)
	}
}

func TestATableOfAnotherCaseIsNotLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	const text = "<!-- bench -->\n\n**idle**: measured before\n<!-- /bench -->\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (Report{Cases: []Result{exampleResult()}}).WriteMarkdown(path); err == nil || !strings.Contains(err.Error(), "tables of idle") {
		t.Errorf("error %v, want one that names idle", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("the file is %q, %v, want it as it was", got, err)
	}
}
