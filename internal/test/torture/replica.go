package torture

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// stopGrace is how long a hub may take after SIGTERM to end its calls and release its leases.
	stopGrace = 30 * time.Second
	// startTime is how long after its start a hub may end because of a broken drivers.yaml.
	startTime = 10 * time.Second
)

// replica is one hub: a name, a proxy, and at most one process at a time.
type replica struct {
	world *world
	name  string
	proxy *proxy

	mu    sync.Mutex // guards all below
	now   *life      // nil: there is no process
	lives sync.WaitGroup
}

// life is one process of a hub.
type life struct {
	*testbed.Hub
	meant, killed bool // to end, and by SIGKILL; guarded by mu of the replica
}

func newReplica(w *world, index int) (*replica, error) {
	r := &replica{world: w, name: fmt.Sprintf("hub%d", index)}
	var err error
	r.proxy, err = newProxy(w.Plane, r.path("kubeconfig"), r.name, w.options.Seed+uint64(index), w.history)
	return r, err
}

func (r *replica) path(extension string) string {
	return filepath.Join(r.world.options.Dir, r.name+"."+extension)
}

// current returns the process; nil: there is none.
func (r *replica) current() *life {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// running reports whether there is a process.
func (r *replica) running() bool { return r.current() != nil }

// start starts a process, if there is none.
func (r *replica) start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		return nil
	}
	broken, whole := r.world.config.state()
	hub, err := r.world.StartHub(ctx, testbed.HubOptions{
		Name: r.name, Kubeconfig: r.path("kubeconfig"), LogPath: r.path("log"), ShutdownGrace: 3 * time.Second, Verbosity: r.world.load.verbosity,
		Args: append([]string{"--profiling", "--leader-election-namespace=" + namespace}, r.world.load.hubFlags...),
	})
	if err != nil {
		return err
	}
	l := &life{Hub: hub}
	r.now = l
	name := r.world.history.named(r.name, hub.PID())
	r.proxy.process.Store(&name)
	r.world.history.add(r.name, "is started, pid %d", hub.PID())
	began := time.Now()
	r.lives.Go(func() {
		<-hub.Done()
		r.ended(ctx, l, func() bool {
			now, _ := r.world.config.state()
			return (!whole || now > broken) && time.Since(began) < startTime && strings.Contains(hub.LastLines(3), "drivers.yaml")
		})
	})
	return nil
}

// ended handles the end of a process. A process that could not read drivers.yaml is started again when
// the file is whole. Any other end that no fault has caused is a finding.
func (r *replica) ended(ctx context.Context, l *life, couldNotRead func() bool) {
	r.forget(l)
	r.mu.Lock()
	meant := l.meant
	r.mu.Unlock()
	if meant || ctx.Err() != nil {
		return
	}
	if !couldNotRead() {
		r.world.find(Finding{About: r.name, Text: fmt.Sprintf("it ended by itself, exit code %d:\n%s", l.ExitCode(), l.LastLines(20))})
		return
	}
	r.world.history.add(r.name, "could not read drivers.yaml and has ended")
	for _, whole := r.world.config.state(); !whole && ctx.Err() == nil; _, whole = r.world.config.state() {
		wait(ctx, 100*time.Millisecond)
	}
	if err := r.start(ctx); err != nil && ctx.Err() == nil {
		r.world.fail(err)
	}
}

func (r *replica) forget(l *life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == l {
		r.now = nil
	}
}

// take returns the process and notes that it is meant to end; nil: there is none.
func (r *replica) take(killed bool) *life {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		r.now.meant, r.now.killed = true, r.now.killed || killed
	}
	return r.now
}

// kill kills the process. It reports whether there was one.
func (r *replica) kill() bool {
	l := r.take(true)
	if l == nil {
		return false
	}
	r.world.history.add(r.name, "is killed")
	l.Kill()
	r.forget(l)
	return true
}

// stop sends SIGTERM to the process and blocks until it has ended; another goroutine may kill it
// meanwhile. It reports whether there was one.
func (r *replica) stop(ctx context.Context) bool {
	l := r.take(false)
	if l == nil {
		return false
	}
	r.world.history.add(r.name, "is asked to end")
	err := l.Stop(ctx, stopGrace)
	r.mu.Lock()
	killed := l.killed
	r.mu.Unlock()
	// Before it has logged anything a process does not handle signals.
	log, missing := os.ReadFile(r.path("log"))
	if begun := missing != nil || bytes.Contains(log, fmt.Appendf(nil, " %d ", l.PID())); err != nil && ctx.Err() == nil && !killed && begun {
		r.world.find(Finding{About: r.name, Text: fmt.Sprintf("it did not end as it should after SIGTERM: %v", err)})
	}
	r.world.history.add(r.name, "has ended")
	r.forget(l)
	return true
}

// signal pauses the process, if there is one, or lets it go on.
func (r *replica) signal(what string, pause bool) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil {
		return false, nil
	}
	r.world.history.add(r.name, "%s", what)
	r.proxy.holds(&r.proxy.pause, pause)
	if pause {
		return true, r.now.Pause()
	}
	return true, r.now.Resume()
}

func (r *replica) pause(what string) (bool, error) { return r.signal(what, true) }

func (r *replica) resume() error {
	_, err := r.signal("goes on", false)
	return err
}
