package registry_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// answers is who answers on sockets.
type answers struct {
	mu    sync.Mutex
	names map[string]string // by the base name of the socket; none: an error
	asked map[string]int
}

func (a *answers) set(socket, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names[socket] = name
}

func (a *answers) ask(_ context.Context, e registry.Endpoint) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	socket := filepath.Base(e.Address())
	a.asked[socket]++
	if name, ok := a.names[socket]; ok {
		return name, nil
	}
	return "", errors.New("connection refused")
}

func (a *answers) count(socket string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[socket]
}

// onSockets runs a test of sockets in virtual time. Nothing blocks on a socket in it.
func onSockets(t *testing.T, names map[string]string, test func(t *testing.T, dir string, a *answers, r *sourceRun)) {
	dir := shortDir(t)
	synctest.Test(t, func(t *testing.T) {
		a := &answers{names: names, asked: map[string]int{}}
		for socket := range names {
			listen(t, filepath.Join(dir, socket))
		}
		r := runSource(t, newSocketSource(t, registry.SocketOptions{Glob: dir + "/*", Ask: a.ask}))
		defer r.stop()
		test(t, dir, a, r)
	})
}

func TestSocketThatVanishesRetiresItsDriverAfterAMinute(t *testing.T) {
	onSockets(t, map[string]string{"a": "a", "b": "b"}, func(t *testing.T, dir string, _ *answers, r *sourceRun) {
		r.expect("a", "b")
		gone := listen(t, filepath.Join(dir, "c"))
		time.Sleep(time.Second)
		check(t, gone.Close()) // before it was seen
		removeSocket(t, filepath.Join(dir, "a"))
		r.nothing(time.Minute)
		if got := r.next(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("got %v, want b alone", got)
		}
	})
}

func TestSocketThatComesBackInTimeStays(t *testing.T) {
	onSockets(t, map[string]string{"a": "a"}, func(t *testing.T, dir string, a *answers, r *sourceRun) {
		r.expect("a")
		for range 5 {
			removeSocket(t, filepath.Join(dir, "a"))
			r.nothing(50 * time.Second)
			asked := a.count("a")
			listen(t, filepath.Join(dir, "a"))
			r.nothing(10 * time.Second)
			if a.count("a") == asked {
				t.Error("the new socket was not asked")
			}
		}
	})
}

func TestSocketWithoutAnAnswerIsAskedUntilThereIsOne(t *testing.T) {
	onSockets(t, map[string]string{"a": "a"}, func(t *testing.T, dir string, a *answers, r *sourceRun) {
		r.expect("a")
		listen(t, filepath.Join(dir, "b"))
		r.nothing(time.Hour)
		if n := a.count("b"); n < 100 || n > 150 {
			t.Errorf("it was asked %d times in an hour, want about each half of a minute", n)
		}
		a.set("b", "late")
		r.expect("a", "late")
	})
}

func TestSocketWithoutAnAnswerIsLoggedOnce(t *testing.T) {
	dir := shortDir(t)
	synctest.Test(t, func(t *testing.T) {
		a := &answers{names: map[string]string{}, asked: map[string]int{}}
		listen(t, filepath.Join(dir, "a"))
		ctx, lines := logContext(t)
		r := runSourceWith(t, ctx, newSocketSource(t, registry.SocketOptions{Glob: dir + "/*", Ask: a.ask}))
		defer r.stop()
		r.expect()
		r.nothing(time.Hour)
		logged(t, lines, "connection refused")
		if len(lines) > 0 {
			t.Errorf("logged again: %s", <-lines)
		}
	})
}

func TestSocketThatAnswersWithAnotherNameChangesTheSet(t *testing.T) {
	onSockets(t, map[string]string{"a": "a"}, func(t *testing.T, dir string, a *answers, r *sourceRun) {
		r.expect("a")
		a.set("a", "other")
		begin := time.Now()
		r.expect("other")
		if after := time.Since(begin); after > time.Minute {
			t.Errorf("it took %v", after)
		}
		// Another process on another socket at the same path is asked at the next look.
		a.set("a", "third")
		removeSocket(t, filepath.Join(dir, "a"))
		listen(t, filepath.Join(dir, "a"))
		begin = time.Now()
		r.expect("third")
		if after := time.Since(begin); after > 3*time.Second {
			t.Errorf("it took %v", after)
		}
	})
}

func TestSocketThatStaysSilentKeepsItsDriver(t *testing.T) {
	onSockets(t, map[string]string{"a": "a"}, func(t *testing.T, dir string, a *answers, r *sourceRun) {
		r.expect("a")
		a.mu.Lock()
		delete(a.names, "a")
		a.mu.Unlock()
		r.nothing(time.Hour)
	})
}

func TestTwoSocketsOfOneDriverAreBothSent(t *testing.T) {
	onSockets(t, map[string]string{"1": "a", "2": "a"}, func(t *testing.T, dir string, a *answers, r *sourceRun) {
		r.expect("a", "a")
	})
}

func TestWhatIsNoSocketIsNotAsked(t *testing.T) {
	onSockets(t, map[string]string{"a": "a"}, func(t *testing.T, dir string, a *answers, r *sourceRun) {
		write(t, filepath.Join(dir, "file"), "")
		r.expect("a")
		r.nothing(time.Hour)
		if n := a.count("file"); n > 0 {
			t.Errorf("a file was asked %d times", n)
		}
	})
}

// removeSocket is what the end of a process does to its socket.
func removeSocket(t *testing.T, path string) {
	t.Helper()
	check(t, os.Remove(path))
}

func TestSocketOptionsAreChecked(t *testing.T) {
	ask := func(context.Context, registry.Endpoint) (string, error) { return "", nil }
	for name, o := range map[string]registry.SocketOptions{
		"no Ask":   {Glob: "/csi/*"},
		"no glob":  {Ask: ask},
		"relative": {Ask: ask, Glob: "csi/*"},
		"negative": {Ask: ask, Glob: "/csi/*", Poll: -1},
	} {
		if _, err := registry.NewSocketSource(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
