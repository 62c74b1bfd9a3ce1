package main

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressLinesHaveUnitsAndTimeLeft(t *testing.T) {
	if got, want := changeText(150, 500, "attached", 15*time.Second), "150 of 500 volumes are attached, 10 per second, about 35s left"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// lastReport is that of a case with four turns, of 10 s of the hub and 20 s of the floor, after a preparation of 30 s.
func lastReport(name string) Report {
	r := Result{Name: name, Took: "1m30s", Rounds: 2}
	for round := range 2 {
		r.Samples = append(r.Samples, Sample{hubName, round + 1, Figures{TurnTook: 10}}, Sample{baselineName, round + 1, Figures{TurnTook: 20}})
	}
	r.judge(nil)
	return Report{Cases: []Result{r}}
}

func TestTimeLeftIsEstimatedFromTurnsAndFromTheLastReport(t *testing.T) {
	four := Case{Name: "four", Rounds: 2} // hub, floor, floor, hub
	end := func(f *forecast, took ...time.Duration) *forecast {
		f.prepared()
		for _, t := range took {
			f.turnEnded(t)
		}
		return f
	}
	last := lastReport("four")
	old := Report{Cases: []Result{{Name: "four", Took: "2m0s", Samples: last.Cases[0].Samples}}}
	old.Cases[0].Samples = Samples{{hubName, 1, Figures{}}, {baselineName, 1, Figures{}}}
	for _, tt := range []struct {
		about string
		f     *forecast
		in    time.Duration // since the turn has begun
		want  string
	}{
		{"no report", newForecast(Options{}, four), 0, "this case: time left unknown"},
		{"no report, one turn", end(newForecast(Options{}, four), 8*time.Second), 0, "this case: about 24s left"},
		{"no report, in the last turn", end(newForecast(Options{}, four), 8*time.Second, 5*time.Second, 7*time.Second), 5 * time.Second, "this case: about 3s left"},
		{"at the beginning", newForecast(Options{Last: last}, four), 10 * time.Second, "this case: about 1m20s left"},
		{"after a longer preparation", newForecast(Options{Last: last}, four), time.Hour, "this case: about 1m0s left"},
		{"in the first turn", end(newForecast(Options{Last: last}, four)), 5 * time.Second, "this case: about 55s left"},
		{"a faster hub", end(newForecast(Options{Last: last}, four), 2*time.Second), 0, "this case: about 42s left"},
		{"a report without lengths of turns", newForecast(Options{Last: old}, four), 0, "this case: about 4m0s left"},
		{"another case after it", newForecast(Options{Last: last, after: []Case{four}}, four), 0, "this case: about 1m30s left, all: about 3m0s"},
		{"an unknown case after it", newForecast(Options{Last: last, after: []Case{{Name: "new", Rounds: 1}}}, four), 0, "this case: about 1m30s left, all: more than 1m30s"},
	} {
		if got := tt.f.text(tt.f.began.Add(tt.in)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.about, got, tt.want)
		}
	}
}

// lines is a writer for several goroutines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func TestALineComesAtLeastEachFifteenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		clock := &stopwatch{}
		n := narrate(&out, "four", clock, newForecast(Options{}, Case{Name: "four", Rounds: 2}))
		time.Sleep(15500 * time.Millisecond)
		n.turn(0, 2, 0, 2, hubName)
		clock.reset(isAttached, 500)
		end := n.follow("attached")
		time.Sleep(15500 * time.Millisecond)
		end()
		n.turnEnded(16 * time.Second)
		n.turn(0, 2, 1, 2, baselineName)
		time.Sleep(31 * time.Second)
		n.stop()
		time.Sleep(time.Minute)
		var got []string
		for line := range strings.Lines(out.text.String()) {
			_, text, _ := strings.Cut(line, "  ")
			got = append(got, text)
		}
		want := []string{
			"four: preparing, for 15s; this case: time left unknown\n",
			"four: round 1 of 2, turn 1 of 2: hub; this case: time left unknown\n",
			"four: round 1 of 2, turn 1 of 2: hub: 0 of 500 volumes are attached, 0 per second, time left unknown; this case: time left unknown\n",
			"four: round 1 of 2, turn 2 of 2: floor; this case: about 48s left\n",
			"four: round 1 of 2, turn 2 of 2: floor, for 15s; this case: about 33s left\n",
			"four: round 1 of 2, turn 2 of 2: floor, for 30s; this case: about 32s left\n",
		}
		if strings.Join(got, "") != strings.Join(want, "") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, ""), strings.Join(want, ""))
		}
	})
}
