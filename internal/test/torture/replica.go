package torture

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
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
	// last is the name of the process that was started last: requests through the proxy are from it.
	last atomic.Pointer[string]

	mu      sync.Mutex // guards all below
	process *testbed.Hub
	meant   map[*testbed.Hub]bool // processes that chaos has stopped or killed
	killed  map[*testbed.Hub]bool // processes that chaos has killed
	lives   sync.WaitGroup
}

func newReplica(w *world, index int) (*replica, error) {
	r := &replica{world: w, name: fmt.Sprintf("hub%d", index), meant: map[*testbed.Hub]bool{}, killed: map[*testbed.Hub]bool{}}
	recorder := &recorder{history: w.history, by: r.name, driver: w.driverOf, process: func() string { return *r.last.Load() }}
	proxy, err := newProxy(w.Plane, r.kubeconfig(), w.options.Seed+uint64(index), recorder)
	if err != nil {
		return nil, err
	}
	r.proxy = proxy
	return r, nil
}

func (r *replica) kubeconfig() string {
	return filepath.Join(r.world.options.Dir, r.name+".kubeconfig")
}
func (r *replica) log() string { return filepath.Join(r.world.options.Dir, r.name+".log") }

// current returns the process; nil: there is none.
func (r *replica) current() *testbed.Hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// running reports whether there is a process.
func (r *replica) running() bool { return r.current() != nil }

// start starts a process, if there is none.
func (r *replica) start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		return nil
	}
	broken, whole := r.world.config.state()
	p, err := r.world.StartHub(ctx, testbed.HubOptions{
		Name: r.name, Kubeconfig: r.kubeconfig(), ShutdownGrace: 3 * time.Second, Verbosity: r.world.load.verbosity,
		Args: append([]string{"--profiling", "--leader-election-namespace=" + namespace}, r.world.load.hubFlags...),
	})
	if err != nil {
		return err
	}
	r.process = p
	name := r.world.named(r.name, p.PID())
	r.last.Store(&name)
	r.world.history.add(r.name, "is started, pid %d", p.PID())
	began := time.Now()
	r.lives.Go(func() {
		<-p.Done()
		r.ended(ctx, p, func() bool {
			now, _ := r.world.config.state()
			return (!whole || now > broken) && time.Since(began) < startTime && strings.Contains(p.LastLines(3), "drivers.yaml")
		})
	})
	return nil
}

// ended handles the end of a process. A process that could not read drivers.yaml is started again when
// the file is whole. Any other end that chaos has not caused is a finding.
func (r *replica) ended(ctx context.Context, p *testbed.Hub, couldNotRead func() bool) {
	r.mu.Lock()
	meant := r.meant[p]
	if r.process == p {
		r.process = nil
	}
	r.mu.Unlock()
	if meant || ctx.Err() != nil {
		return
	}
	if !couldNotRead() {
		r.world.find(Finding{About: r.name, Text: fmt.Sprintf("it ended by itself, exit code %d:\n%s", p.ExitCode(), p.LastLines(20))})
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

// take returns the process and notes that chaos ends it; nil: there is none.
func (r *replica) take(killed bool) *testbed.Hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meant[r.process] = true
	r.killed[r.process] = r.killed[r.process] || killed
	return r.process
}

// wasKilled reports whether chaos has killed a process.
func (r *replica) wasKilled(p *testbed.Hub) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed[p]
}

// kill kills the process. It reports whether there was one.
func (r *replica) kill() bool {
	p := r.take(true)
	if p == nil {
		return false
	}
	r.world.history.add(r.name, "is killed")
	p.Kill()
	r.forget(p)
	return true
}

// stop sends SIGTERM to the process and blocks until it has ended; another goroutine may kill it
// meanwhile. It reports whether there was one.
func (r *replica) stop(ctx context.Context) bool {
	p := r.take(false)
	if p == nil {
		return false
	}
	r.world.history.add(r.name, "is asked to end")
	if err := p.Stop(ctx, stopGrace); err != nil && ctx.Err() == nil && !r.wasKilled(p) && r.hasBegun(p) {
		r.world.find(Finding{About: r.name, Text: fmt.Sprintf("it did not end as it should after SIGTERM: %v", err)})
	}
	r.world.history.add(r.name, "has ended")
	r.forget(p)
	return true
}

// hasBegun reports whether a process has logged anything: before that it does not handle signals.
func (r *replica) hasBegun(p *testbed.Hub) bool {
	log, err := os.ReadFile(r.log())
	return err != nil || bytes.Contains(log, fmt.Appendf(nil, " %d ", p.PID()))
}

func (r *replica) forget(p *testbed.Hub) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == p {
		r.process = nil
	}
}

// pause stops the process, if there is one, until resume.
func (r *replica) pause(what string) (bool, error) {
	return r.signal(what, true, (*testbed.Process).Pause)
}

func (r *replica) resume() error {
	_, err := r.signal("goes on", false, (*testbed.Process).Resume)
	return err
}

func (r *replica) signal(what string, pause bool, send func(*testbed.Process) error) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return false, nil
	}
	r.world.history.add(r.name, "%s", what)
	r.proxy.holds(&r.proxy.pause, pause)
	return true, send(r.process.Process)
}
