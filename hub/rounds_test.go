package hub

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// attended runs attend with one round every StuckAfter, each look of which takes long. It
// returns the begins of the looks, since now, when the context has ended.
func attended(ctx context.Context, d *driver, long time.Duration, lost func()) func() []time.Duration {
	var looks []time.Duration
	began := time.Now()
	r := &round{
		pause: func(s registry.Settings) time.Duration { return s.StuckAfter },
		look: func(ctx context.Context) {
			looks = append(looks, time.Since(began))
			sleep(ctx, long)
		},
	}
	var group, all sync.WaitGroup
	all.Go(func() { d.attend(ctx, &group, []*round{r}, lost) })
	return func() []time.Duration { all.Wait(); group.Wait(); return looks }
}

func attendable(every time.Duration) *driver {
	return &driver{desired: newDesired(driverWith(every, 1)), table: begun(1), budget: rate.NewLimiter(rate.Inf, 0),
		term: lease.Always(), absence: &absence{}, fail: func(error) {}}
}

// begun returns a Table in a term.
func begun(workers int) *volume.Table {
	t := volume.NewTable("finalizer")
	t.Begin(workers)
	return t
}

func driverWith(stuckAfter time.Duration, workers int) registry.Driver {
	return registry.Driver{Name: "d", Settings: registry.Settings{StuckAfter: stuckAfter, Workers: workers}}
}

func TestRoundsAreCountedFromTheEndOfTheLastOneAndFollowTheSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		d := attendable(10 * time.Second)
		looks := attended(ctx, d, 5*time.Second, func() { t.Error("the lease is taken for lost") })
		time.Sleep(31 * time.Second) // looks at 10 and 25, which ended at 30
		d.desired.set(driverWith(3*time.Second, 7))
		synctest.Wait()
		if got := d.table.Workers(); got != 7 {
			t.Errorf("%d workers, want those of the new settings", got)
		}
		time.Sleep(time.Second) // 32, before the next at 33
		d.desired.set(driverWith(time.Hour, 7))
		time.Sleep(2 * time.Second)
		d.desired.set(driverWith(20*time.Second, 7))
		want := []time.Duration{10 * time.Second, 25 * time.Second, 50 * time.Second}
		if got := looks(); !slices.Equal(got, want) {
			t.Errorf("looks at %v, want %v", got, want)
		}
	})
}
