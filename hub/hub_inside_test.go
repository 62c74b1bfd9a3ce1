package hub

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCachesThatNeverFillAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var synced atomic.Bool
		check := check(&synced, syncLimit, "late")
		time.Sleep(syncLimit - time.Second)
		if err := check(); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(time.Second)
		if check() == nil {
			t.Error("caches that do not fill are not found")
		}
		synced.Store(true)
		if err := check(); err != nil {
			t.Errorf("caches that are filled: %v", err)
		}
	})
}
