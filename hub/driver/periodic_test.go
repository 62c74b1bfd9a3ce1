package driver

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func driverWith(stuckAfter time.Duration, workers int) registry.Driver {
	return registry.Driver{Name: "d", Settings: registry.Settings{StuckAfter: stuckAfter, Workers: workers}}
}

func TestPeriodicWorkIsTimedFromTheEndOfItsLastRunAndFollowsTheSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		d := routed(t)
		d.driver.SetSpec(driverWith(10*time.Second, 1))
		var looks []time.Duration
		began := time.Now()
		var attending sync.WaitGroup
		p := &periodic{
			since: began,
			pause: func(s registry.Settings) time.Duration { return s.StuckAfter },
			run: func(ctx context.Context) {
				looks = append(looks, time.Since(began))
				reconcile.Sleep(ctx, 5*time.Second)
			},
		}
		attending.Go(func() { d.attend(ctx, nil, p) })
		time.Sleep(31 * time.Second) // looks at 10 and 25, which ended at 30
		d.driver.SetSpec(driverWith(3*time.Second, 7))
		synctest.Wait()
		if got := d.driver.Queue.Workers(queue.AttachLane, time.Now()); got != 4 {
			t.Errorf("%d workers for attaches, want half of those of the new settings, rounded up", got)
		}
		time.Sleep(time.Second) // 32, before the next at 33
		d.driver.SetSpec(driverWith(time.Hour, 7))
		time.Sleep(2 * time.Second)
		d.driver.SetSpec(driverWith(20*time.Second, 7))
		attending.Wait()
		d.workers.Wait()
		want := []time.Duration{10 * time.Second, 25 * time.Second, 50 * time.Second}
		if !slices.Equal(looks, want) {
			t.Errorf("looks at %v, want %v", looks, want)
		}
	})
}
