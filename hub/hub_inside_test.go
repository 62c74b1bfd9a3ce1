package hub

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestCachesThatNeverFillAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		synced := false
		check := checkSync(time.Now(), func() bool { return synced })
		time.Sleep(syncLimit)
		if err := check(); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(time.Second)
		if check() == nil {
			t.Error("caches that do not fill are not found")
		}
		synced = true
		if err := check(); err != nil {
			t.Errorf("caches that are filled: %v", err)
		}
	})
}
