package registry

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventsWithoutEndDoNotKeepAFileFromBeingRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drivers.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := settlingReader{file: path, debounce: 100 * time.Millisecond}
		defer r.stop()
		event := time.NewTicker(50 * time.Millisecond)
		defer event.Stop()
		begin := time.Now()
		r.disturb()
		for {
			select {
			case <-event.C:
				if time.Since(begin) > time.Minute {
					t.Fatal("the file was not read for a minute")
				}
				r.disturb()
			case <-r.due():
				return
			}
		}
	})
}
