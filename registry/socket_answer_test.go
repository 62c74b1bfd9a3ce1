package registry_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// The process that answers may have ended meanwhile, and another driver have taken its
// place on the socket.
func TestAnswerOfAProcessThatHasEndedIsNotBelieved(t *testing.T) {
	dir := shortDir(t)
	socket := filepath.Join(dir, "a")
	l := listen(t, socket)
	synctest.Test(t, func(t *testing.T) {
		first, release := true, make(chan struct{})
		ask := func(context.Context, registry.Endpoint) (string, error) {
			if first {
				first = false
				<-release
				return "old", nil
			}
			return "new", nil
		}
		r := runSource(t, newSocketSource(t, registry.SocketOptions{Glob: dir + "/*", Ask: ask}))
		defer r.stop()
		r.expect() // the driver hangs
		check(t, l.Close())
		listen(t, socket)
		time.Sleep(5 * time.Second) // the new socket is seen
		close(release)
		if got := r.next(); !slices.Equal(got, []string{"new"}) {
			t.Errorf("got %v", got)
		}
		r.nothing(time.Hour)
		// One that is gone for good before it answers is not there again by its answer.
		first, release = true, make(chan struct{})
		removeSocket(t, socket)
		time.Sleep(2 * time.Minute)
		if got := r.next(); len(got) != 0 {
			t.Errorf("got %v", got)
		}
		listen(t, socket)
		time.Sleep(5 * time.Second)
		removeSocket(t, socket)
		time.Sleep(5 * time.Second)
		close(release)
		r.nothing(time.Hour)
	})
}
