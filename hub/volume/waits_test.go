package volume_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// keeps counts its Drops.
type keeps struct{ dropped int }

func (k *keeps) Drop() { k.dropped++ }

func TestAnEntryKnowsWhatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := openTable(2, 0, true)
		start := time.Now()
		told := func(waits []volume.Waited) (lines []string) {
			for _, w := range waits {
				line := fmt.Sprint(w.Wait.Kind, " ", w.From.Sub(start))
				if !w.Until.IsZero() {
					line += fmt.Sprint("-", w.Until.Sub(start))
				}
				lines = append(lines, line)
			}
			return lines
		}
		check := func(when string, got []volume.Waited, want ...string) {
			t.Helper()
			if fmt.Sprint(told(got)) != fmt.Sprint(want) {
				t.Errorf("%s: %q, want %q", when, told(got), want)
			}
		}
		detach, attach := volume.ClaimKey("detach"), volume.ClaimKey("attach")
		table.Add(detach, volume.DetachLane, only("v", "a"))
		first := table.Take(time.Now())
		table.Add(attach, volume.AttachLane, only("v", "b"))
		time.Sleep(time.Second)
		_, waits := table.History(attach)
		check("blocked", waits, fmt.Sprint(volume.WaitDetach, " 0s"))
		table.Done(first)
		time.Sleep(time.Second)
		_, waits = table.History(attach)
		check("ready", waits, fmt.Sprint(volume.WaitDetach, " 0s-1s"), fmt.Sprint(volume.WaitWorker, " 1s"))
		e := table.Take(time.Now())
		mine := &keeps{}
		table.Keep(e, mine)
		due, waits := table.TakeWaits(e)
		if !due.Equal(start) {
			t.Errorf("due at %v, want the beginning", due.Sub(start))
		}
		check("runs", waits, fmt.Sprint(volume.WaitDetach, " 0s-1s"), fmt.Sprint(volume.WaitWorker, " 1s-2s"))
		table.DoneFor(e, volume.AttachLane, time.Minute)
		kept, waits := table.History(attach)
		check("backs off", waits)
		time.Sleep(time.Minute)
		e = table.Take(time.Now())
		due, waits = table.TakeWaits(e)
		check("runs at once when it is due", waits)
		if due.Sub(start) != time.Minute+2*time.Second || kept != volume.Kept(mine) || e.Kept() != volume.Kept(mine) || *mine != (keeps{}) {
			t.Errorf("due at %v, kept %v, %v", due.Sub(start), kept, e.Kept())
		}
		table.Done(e)
		if kept, waits := table.History(attach); kept != nil || waits != nil {
			t.Errorf("an entry that has ended has %v, %v", kept, waits)
		}
		if *mine != (keeps{dropped: 1}) {
			t.Errorf("after the end of the entry: %+v", *mine)
		}
		table.Add(attach, volume.AttachLane, only("v", "b"))
		e = table.Take(time.Now())
		table.Keep(e, mine)
		table.DoneFor(e, volume.AttachLane, time.Minute)
		table.Close()
		if *mine != (keeps{dropped: 2}) {
			t.Errorf("after the end of the term: %+v", *mine)
		}
	})
}
