package status

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheLastQuarterOfAnHourIsKeptAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetrics()
		d := m.Driver("a")
		check := func(when string, want *spark) {
			t.Helper()
			got := m.spark("a", time.Now())
			if got != nil { // the picture is the other test's
				got.Mean, got.Slowest, got.Failed = "", "", ""
			}
			if !cmp.Equal(got, want) {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		check("at the start", nil)
		d.Operation(Attach, Success, 100*time.Millisecond)
		d.Operation(Detach, Success, 300*time.Millisecond)
		d.Operation(Attach, Timeout, time.Hour) // of which nothing is to be seen but that it failed
		time.Sleep(10 * time.Minute)
		d.Operation(Attach, Success, 2*time.Second)
		check("after ten minutes", &spark{Done: 3, Errors: 1, MeanText: "800ms", SlowestText: "2s"})
		time.Sleep(10 * time.Minute)
		check("after twenty minutes", &spark{Done: 1, MeanText: "2s", SlowestText: "2s"})
		time.Sleep(24 * time.Hour)
		check("a day later", nil)
		d.Operation(Attach, Success, time.Second)
		m.Forget("a")
		check("of a driver that is retired", nil)
	})
}

func TestASparklineHasABarForEachSlot(t *testing.T) {
	now := time.Unix(1700000000, 0)
	var r recent
	at := func(slot int) time.Time { return now.Add(time.Duration(slot-recentSlots+1) * slotLength) }
	r.add(at(3), Success, 10*time.Millisecond)
	r.add(at(4), Success, 100*time.Second)
	r.add(at(5), Unavailable, time.Second)
	r.add(at(recentSlots-1), Success, time.Hour)
	r.add(at(recentSlots-1), Success, 10*time.Millisecond)
	want := &spark{Mean: "M7 24v-1M9 24v-24M119 24v-24", Slowest: "M7 24v-1M9 24v-24M119 24v-24", Failed: "M11 28v-3", Done: 4, Errors: 1, MeanText: "15m25s", SlowestText: "1h"}
	if got := r.spark(now); !cmp.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
