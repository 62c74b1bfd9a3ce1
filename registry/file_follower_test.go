package registry

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A reading that came a debounce after the first event took half of a file for all of it, and the drivers
// of the other half would have been drained.
func TestFileIsReadOnlyWhenItHasRested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "drivers.yaml")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("all of it")
		f := fileFollower{path: path, debounce: 100 * time.Millisecond, used: readContent(path).id}
		follow := func(d time.Duration) {
			for end := time.After(d); ; {
				select {
				case <-end:
					return
				case <-f.due:
					if c := f.read(); c != nil {
						t.Errorf("believes %+v", *c)
					}
				}
			}
		}
		write("")
		f.expectChange()
		follow(90 * time.Millisecond)
		write("half")
		f.expectChange()
		follow(160 * time.Millisecond)
		write("all of it")
		f.expectChange()
		follow(time.Second)
		if f.due != nil {
			t.Error("it is still read, although nothing has happened to it for long")
		}
	})
}
