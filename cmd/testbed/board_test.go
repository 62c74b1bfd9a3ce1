package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var rowsOfTwo = []row{
	{Driver: "fast.demo.csi.example.com", Attached: 10, Failed: 2, Took: took{N: 10, P50: 75 * time.Millisecond, P99: 1250 * time.Millisecond}},
	{Driver: "slow.demo.csi.example.com", Waiting: 3, Attaching: 7, Failing: 1, Failed: 1},
}

func TestBoardShowsWhatFits(t *testing.T) {
	tests := []struct {
		width int
		want  []string
	}{
		{120, []string{
			" 12s  Phase 1: attach",
			"driver                     waiting  attaching  attached  detaching  errors  seen   p50   p99",
			"fast.demo.csi.example.com        0          0        10          0       0     2  75ms  1.2s",
			"slow.demo.csi.example.com        3          7         0          0       1     1     -     -",
		}},
		{80, []string{
			" 12s  Phase 1: attach",
			"driver  waiting  attaching  attached  detaching  errors  seen   p50   p99",
			"fast          0          0        10          0       0     2  75ms  1.2s",
			"slow          3          7         0          0       1     1     -     -",
		}},
		{40, []string{
			" 12s  Phase 1: attach",
			"driver  waiting  attaching  attached",
			"fast          0          0        10",
			"slow          3          7         0",
		}},
		{5, []string{" 12…", "dri…", "fas…", "slo…"}},
		{1, []string{"", "", "", ""}},
	}
	b := board{headline: "Phase 1: attach", elapsed: 12 * time.Second, rows: rowsOfTwo}
	for _, tt := range tests {
		var got []string
		for _, l := range b.lines(tt.width) {
			got = append(got, l.text)
			if n := utf8.RuneCountInString(l.text); n >= tt.width && n > 0 {
				t.Errorf("width %d: %q has %d characters", tt.width, l.text, n)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("width %d: -want +got\n%s", tt.width, diff)
		}
	}
}

func TestRepaintDrawsOverTheLastBoard(t *testing.T) {
	lines := []line{{"head", bold}, {"row", ""}}
	tests := []struct {
		name   string
		drawn  int
		above  []string
		colour bool
		want   string
	}{
		{"first", 0, nil, false, "\r\x1b[Jhead\nrow\n"},
		{"again", 2, nil, true, "\x1b[2A\r\x1b[J\x1b[1mhead\x1b[0m\nrow\n"},
		{"below what stays", 2, []string{"said"}, false, "\x1b[2A\r\x1b[Jsaid\nhead\nrow\n"},
	}
	for _, tt := range tests {
		if got := repaint(tt.drawn, tt.above, lines, tt.colour); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestDisplayWithoutTerminalSaysOnlyWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counters := newCounters([]string{"a.example.com", "b.example.com"})
		var out bytes.Buffer
		d := newDisplay(&out, counters.rows)
		ctx, cancel := context.WithCancel(t.Context())
		go d.run(ctx)
		d.phase("One.")
		time.Sleep(10 * time.Second)
		counters.expect(map[string]int{"a.example.com": 2})
		time.Sleep(10 * time.Second)
		counters.inFlight("a.example.com", 1)
		d.say("Two.")
		cancel()
		<-d.ended
		d.say("nobody listens any more")
		want := `One.
  a: 2 waiting, 0 attaching, 0 attached, 0 detaching, errors 0 now 0 seen, p50 - p99 -
  a: 1 waiting, 1 attaching, 0 attached, 0 detaching, errors 0 now 0 seen, p50 - p99 -
Two.
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestDisplayOnALowTerminalStaysOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := newDisplay(&out, func() []row { return rowsOfTwo })
		d.size = func() (int, int) { return 80, 3 }
		ctx, cancel := context.WithCancel(t.Context())
		go d.run(ctx)
		d.phase("One.")
		cancel()
		<-d.ended
		if got := out.String(); strings.Contains(got, "fast") || strings.Count(got, "\n") != 4 || !strings.Contains(got, "\x1b[2A") {
			t.Errorf("two boards of two lines should be drawn over each other, got %q", got)
		}
	})
}

func TestReportAddsUp(t *testing.T) {
	r := report{page: "http://127.0.0.1:1/", setUp: 2 * time.Second, others: 3 * time.Second, attach: 4 * time.Second, detach: 500 * time.Millisecond, drivers: []driverReport{
		{row: rowsOfTwo[0], volumes: 10, publishes: 10, unpublishes: 10},
		{row: rowsOfTwo[1], volumes: 10, publishes: 30, unpublishes: 15},
	}}
	for _, want := range []string{
		"slow         10         30        3.00           15        1.50       1     -     -\n",
		"all          20         40        2.00           25        1.25\n",
		"set-up 2.0s, attach 4.0s (without the hanging driver 3.0s), detach 500ms\n",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("no %q in %s", want, r)
		}
	}
}
