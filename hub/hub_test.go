package hub

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
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

// TestMapNamesWhatExists finds files and functions in doc.go that the code does not have any more.
func TestMapNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(\w+/[\w/-]+\.(?:go|yaml|md))(?::(\w+))?`).FindAllStringSubmatch(string(text), -1)
	if len(all) < 30 {
		t.Errorf("the map names %d files", len(all))
	}
	for _, named := range all {
		code, err := os.ReadFile(filepath.Join("..", named[1]))
		if err != nil {
			t.Error(err)
		} else if named[2] != "" && !regexp.MustCompile(`(?m)^func (\(.*\) )?`+named[2]+`\b`).Match(code) {
			t.Errorf("%s has no function %s", named[1], named[2])
		}
	}
}
