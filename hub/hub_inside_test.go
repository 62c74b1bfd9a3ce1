package hub

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
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

func TestWhichDriversAreServedIsNotKnownBeforeTheFirstSnapshot(t *testing.T) {
	h := &Hub{}
	if h.served() != nil {
		t.Error("known before")
	}
	updates, ended := make(chan registry.Snapshot), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { h.follow(ctx, updates); close(ended) }()
	for range 2 { // the first is applied when the second is taken
		updates <- registry.Snapshot{}
	}
	if h.served() == nil {
		t.Error("not known with a snapshot")
	}
	cancel()
	<-ended
}
