package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A reading that came a debounce after the first event took half of a file for all of it, and the drivers
// of the other half would have been drained.
func TestFileIsReadOnlyWhenItHasRested(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drivers.yaml")
	write := func(drivers string) {
		if err := os.WriteFile(path, []byte("apiVersion: "+apiVersion+"\nkind: "+configKind+"\ndrivers: ["+drivers+"]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const half, all = "{name: a, endpoint: 'unix:///a'}", "{name: a, endpoint: 'unix:///a'}, {name: b, endpoint: 'unix:///b'}"
	write(all)
	synctest.Test(t, func(t *testing.T) {
		f, err := NewFile(path, DefaultSettings())
		if err != nil {
			t.Fatal(err)
		}
		events := make(chan fsnotify.Event)
		f.newWatcher = func() (*fsnotify.Watcher, error) {
			return &fsnotify.Watcher{Events: events}, errors.New("has no folder")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.Run(ctx, func() { t.Errorf("believes %v", f.Config().Drivers()) })
		}()
		time.Sleep(time.Second)
		for _, step := range []struct {
			drivers string
			rest    time.Duration
		}{{"", 90 * time.Millisecond}, {half, 160 * time.Millisecond}, {all, time.Second}} {
			write(step.drivers)
			events <- fsnotify.Event{}
			time.Sleep(step.rest)
		}
		cancel()
		<-ended
	})
}
