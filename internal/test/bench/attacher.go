package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// competitor is a way to attach volumes that bench measures.
type competitor struct {
	name string
	// start starts it. The caller must stop the attacher, also after an error.
	start func(context.Context, *stage) (*attacher, error)
	// bursts bounds the bursts of one round; 0: as many as the case has.
	bursts int
}

// attacher is a competitor that runs, in one or more processes.
type attacher struct {
	name      string
	processes []*testbed.Process
	urls      []string           // where each process but the proxies serves HTTP
	proxies   []*testbed.Process // those of processes that stand before drivers
	sidecars  bool               // csi-attacher, which does not handle SIGTERM
	bursts    int                // of its turn
	// another starts one more replica of it and blocks until that is ready, as a readiness probe sees it. The caller must stop
	// the replica, also after an error.
	another func(context.Context) (*attacher, error)
	ready   time.Duration
	before  before
}

// before has the counts before the start of a competitor.
type before struct {
	requests testbed.RequestCounts
	calls    calls
}

func (a *attacher) add(p *testbed.Process, url string) {
	a.processes = append(a.processes, p)
	a.urls = append(a.urls, url)
}

// usage returns what all its processes take. It reads their metrics, for which they need CPU time.
func (a *attacher) usage(ctx context.Context) (usage, error) {
	all, err := a.quietUsage()
	if err != nil {
		return usage{}, err
	}
	runtime := usage{}
	for _, url := range a.urls {
		families, err := testbed.Metrics(ctx, url+"/metrics")
		if err != nil {
			return usage{}, err
		}
		runtime.add(usage{heap: sum(families["go_memstats_heap_inuse_bytes"]), goroutines: sum(families["go_goroutines"])})
	}
	all.heap, all.goroutines = runtime.heap, runtime.goroutines
	return all, nil
}

// quietUsage is usage without the heap and the goroutines, which are unknown: it asks the kernel alone.
func (a *attacher) quietUsage() (all usage, err error) {
	for _, p := range a.processes {
		u, err := processUsage(p.PID())
		if err != nil {
			return usage{}, err
		}
		all.add(u)
	}
	return all, nil
}

// whileRuns calls act with a context that ends when one of the processes ends. The end of a process
// is an error.
func (a *attacher) whileRuns(ctx context.Context, act func(context.Context) error) error {
	return testbed.WhileRunning(ctx, a.processes, act)
}

// stop stops all its processes at once and blocks until they have ended.
func (a *attacher) stop(ctx context.Context) error {
	return testbed.Each(ctx, max(1, len(a.processes)), a.processes, func(ctx context.Context, p *testbed.Process) error {
		if a.sidecars {
			p.Kill()
			return nil
		}
		return p.Stop(ctx, stopGrace)
	})
}

// kill ends all its processes with SIGKILL and blocks until they have ended. They are no longer part of it.
func (a *attacher) kill(context.Context) error {
	for _, p := range a.processes {
		if err := p.Signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	for _, p := range a.processes {
		p.Kill()
	}
	a.processes, a.urls = nil, nil
	return nil
}

// exit ends all its processes with SIGTERM and blocks until they have ended. They are no longer part of it.
func (a *attacher) exit(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopGrace, fmt.Errorf("not ended %v after SIGTERM", stopGrace))
	defer cancel()
	for _, p := range a.processes {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for _, p := range a.processes {
		if err := p.Wait(ctx); err != nil && !a.sidecars {
			return err
		}
	}
	a.processes, a.urls = nil, nil
	return context.Cause(ctx)
}
