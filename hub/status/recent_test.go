package status

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheLastQuarterOfAnHourIsKeptAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetrics()
		d := m.Driver("a")
		look := func() (slot, history) {
			h := m.history("a", time.Now())
			return h.total(), h
		}
		if total, _ := look(); total != (slot{}) {
			t.Errorf("at the start: %+v", total)
		}
		d.Operation(Attach, Success, 100*time.Millisecond)
		d.Operation(Detach, Success, 300*time.Millisecond)
		d.Operation(Attach, Timeout, time.Hour) // of which nothing is to be seen but that it failed
		time.Sleep(10 * time.Minute)
		d.Operation(Attach, Success, 2*time.Second)
		total, h := look()
		if total.done != 3 || total.failed != 1 || total.mean() != 800*time.Millisecond || total.slowest != 2*time.Second {
			t.Errorf("after ten minutes: %+v", total)
		}
		if first := h[recentSlots-1-40]; first.done != 2 || first.failed != 1 || first.mean() != 200*time.Millisecond {
			t.Errorf("ten minutes before: %+v", first)
		}
		time.Sleep(10 * time.Minute)
		if total, _ := look(); total.done != 1 || total.failed != 0 {
			t.Errorf("after twenty minutes: %+v", total)
		}
		time.Sleep(24 * time.Hour)
		if total, _ := look(); total != (slot{}) {
			t.Errorf("a day later: %+v", total)
		}
		d.Operation(Attach, Success, time.Second)
		m.Forget("a")
		if total, _ := look(); total != (slot{}) {
			t.Errorf("of a driver that is retired: %+v", total)
		}
	})
}

func TestASparklineHasAFigureForEachRunOfBars(t *testing.T) {
	var h history
	h[3] = slot{done: 1, sum: 10 * time.Millisecond, slowest: 10 * time.Millisecond}
	h[4] = slot{done: 2, sum: 2 * time.Second, slowest: 100 * time.Second}
	h[5] = slot{failed: 7}
	h[recentSlots-1] = slot{done: 1, sum: time.Hour, slowest: time.Hour}
	s := newSpark(&h)
	if s.Mean != "M6 24V23h2V12h2V24zM118 24V0h2V24z" || s.Failed != "M10 28V25h2V28z" || !strings.HasPrefix(s.Slowest, "M6 24V23h2V0h2V24z") {
		t.Errorf("got mean %s, slowest %s, failed %s", s.Mean, s.Slowest, s.Failed)
	}
	if s.Done != 4 || s.Errors != 7 || s.SlowestText != "1 h" {
		t.Errorf("got %+v", s)
	}
	if empty := newSpark(&history{}); empty.Mean+empty.Slowest+empty.Failed+empty.MeanText != "" {
		t.Errorf("of nothing: %+v", empty)
	}
}
