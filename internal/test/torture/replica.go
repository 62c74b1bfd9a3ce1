package torture

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// stopGrace is how long a hub may take after SIGTERM to end its calls and release its leases.
const stopGrace = 30 * time.Second

// replica is one hub: a name, a proxy, and at most one process at a time.
type replica struct {
	world *world
	name  string
	proxy *proxy

	mu    sync.Mutex   // guards all below; held while a process starts or ends
	now   *testbed.Hub // nil: there is no process
	lives sync.WaitGroup
}

func newReplica(w *world, index int) (*replica, error) {
	r := &replica{world: w, name: fmt.Sprintf("hub%d", index)}
	var err error
	r.proxy, err = newProxy(w.Plane, r.path("kubeconfig"), r.name, w.history)
	return r, err
}

func (r *replica) path(extension string) string {
	return filepath.Join(r.world.options.Dir, r.name+"."+extension)
}

// current returns the process; nil: there is none.
func (r *replica) current() *testbed.Hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// start starts a process, if there is none.
func (r *replica) start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		return nil
	}
	hub, err := r.world.StartHub(ctx, testbed.HubOptions{
		Name: r.name, Kubeconfig: r.path("kubeconfig"), LogPath: r.path("log"), ShutdownGrace: 3 * time.Second, Verbosity: r.world.verbosity,
		Args: append([]string{"--profiling", "--leader-election-namespace=" + namespace}, r.world.hubFlags...),
	})
	if err != nil {
		return err
	}
	r.now = hub
	name := r.world.history.named(r.name, hub.PID())
	r.proxy.process.Store(&name)
	r.world.history.add(r.name, "is started, pid %d", hub.PID())
	r.lives.Go(func() {
		<-hub.Done()
		r.mu.Lock()
		meant := r.now != hub
		r.mu.Unlock()
		if !meant {
			r.world.find(Finding{About: r.name, Text: fmt.Sprintf("it ended by itself, exit code %d:\n%s", hub.ExitCode(), hub.LastLines(20))})
		}
	})
	return nil
}

// kill kills the process. It reports whether there was one.
func (r *replica) kill() bool {
	return r.end("is killed", func(hub *testbed.Hub) { hub.Kill() })
}

// stop sends SIGTERM to the process and blocks until it has ended. It reports whether there was one.
func (r *replica) stop(ctx context.Context) bool {
	return r.end("is asked to end", func(hub *testbed.Hub) {
		err := hub.Stop(ctx, stopGrace)
		// Before it has logged anything a process does not handle signals.
		log, _ := os.ReadFile(r.path("log"))
		if err != nil && ctx.Err() == nil && bytes.Contains(log, fmt.Appendf(nil, " %d ", hub.PID())) {
			r.world.find(Finding{About: r.name, Text: fmt.Sprintf("it did not end as it should after SIGTERM: %v", err)})
		}
	})
}

// end ends the process. It reports whether there was one.
func (r *replica) end(what string, end func(*testbed.Hub)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	hub := r.now
	if r.now = nil; hub == nil {
		return false
	}
	r.world.history.add(r.name, "%s", what)
	end(hub)
	r.world.history.add(r.name, "has ended")
	return true
}

// signal pauses the process, if there is one, or lets it go on.
func (r *replica) signal(pause bool) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil {
		return false, nil
	}
	r.proxy.pauses(pause)
	if pause {
		r.world.history.add(r.name, "is paused")
		return true, r.now.Pause()
	}
	r.world.history.add(r.name, "goes on")
	return true, r.now.Resume()
}

// settings of one driver in drivers.yaml.
type settings struct{ mode, others string } // others in flow style

// driversFile is the drivers.yaml of all hubs.
type driversFile struct {
	path    string
	drivers []*testbed.Driver

	mu       sync.Mutex // guards all below, and the file
	defaults string
	settings []settings // by driver
	instead  string     // content of the file; empty: the drivers
}

// reset makes the file what it is while nothing is wrong.
func (f *driversFile) reset(l load) {
	f.defaults, f.instead, f.settings = l.defaults, "", nil
	for i := range f.drivers {
		f.settings = append(f.settings, l.settings(i))
	}
}

// change changes the file, by a rename, as Kubernetes does.
func (f *driversFile) change(change func(*driversFile)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
	content := cmp.Or(f.instead, testbed.Config(f.drivers, f.defaults, func(d *testbed.Driver) string {
		s := f.settings[slices.Index(f.drivers, d)]
		return strings.TrimSuffix("mode: "+s.mode+", "+s.others, ", ")
	}))
	if err := errors.Join(os.WriteFile(f.path+".new", []byte(content), 0o600), os.Rename(f.path+".new", f.path)); err != nil {
		return fmt.Errorf("write drivers.yaml: %w", err)
	}
	return nil
}
