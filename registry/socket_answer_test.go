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
		held := make(chan chan struct{}, 1) // the next answer waits until this is closed
		ask := func(context.Context, registry.Endpoint) (string, error) {
			select {
			case release := <-held:
				<-release
				return "old", nil
			default:
				return "new", nil
			}
		}
		release := make(chan struct{})
		held <- release
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
		removeSocket(t, socket)
		time.Sleep(2 * time.Minute)
		if got := r.next(); len(got) != 0 {
			t.Errorf("got %v", got)
		}
		release = make(chan struct{})
		held <- release
		listen(t, socket)
		time.Sleep(5 * time.Second)
		removeSocket(t, socket)
		time.Sleep(5 * time.Second)
		close(release)
		r.nothing(time.Hour)
	})
}
