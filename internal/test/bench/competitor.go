package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	hubName          = "hub"
	baselineName     = "baseline"
	sidecarName      = "csi-attacher"
	tunedSidecarName = "csi-attacher tuned"

	// baselineCommand is the subcommand of this program that is the baseline: a process of its own, so that the kernel measures it apart.
	baselineCommand = "baseline"
	baselineReady   = "baseline is ready"

	// stopGrace bounds the end of a process.
	stopGrace = time.Minute
)

// tuned are flags of csi-attacher that lift its limits.
var tuned = []string{"--kube-api-qps=1000", "--kube-api-burst=1000", "--worker-threads=100", "--timeout=2m"}

// competitor is a way to attach volumes that bench measures.
type competitor struct {
	name string
	// start starts it. The caller must stop the attacher, also after an error.
	start func(context.Context, *stage) (*attacher, error)
}

// competitors returns those of a round, which counts from 0, in the order of their turns. The control plane gets slower with age, and
// the machine's speed drifts: so hub and baseline are neighbours, and each is the first in every second round.
func (s *stage) competitors(round int) []competitor {
	all := []competitor{{hubName, func(ctx context.Context, s *stage) (*attacher, error) { return s.startHub(ctx, s.Drivers) }}}
	if !s.c.alone {
		all = append(all, competitor{baselineName, startBaseline})
	}
	if round%2 == 1 {
		slices.Reverse(all)
	}
	if s.sidecar != "" && round < s.c.SidecarRounds {
		if !s.c.tunedOnly {
			all = append(all, sidecars(sidecarName))
		}
		all = append(all, sidecars(tunedSidecarName, tuned...))
	}
	return all
}

// attacher is a competitor that runs, in one or more processes.
type attacher struct {
	name      string
	processes []*testbed.Process
	proxies   []*testbed.Process // those of processes that are before drivers
	urls      []string           // where the hub, or each csi-attacher, serves HTTP
	sidecars  bool               // csi-attacher, which does not handle SIGTERM
	ready     time.Duration      // from the start of the processes
	before    counts             // before that
}

// startHub starts csi-attach-hub as users run it, for some of the drivers, and blocks until it is connected to all of them and holds
// their leases. It sets workers and drift.interval if the case does; all other settings are the defaults.
func (s *stage) startHub(ctx context.Context, drivers []*testbed.Driver) (*attacher, error) {
	a := &attacher{name: hubName}
	var defaults []string
	if s.c.Workers > 0 {
		defaults = append(defaults, fmt.Sprintf("workers: %d", s.c.Workers))
	}
	if s.c.Drift > 0 {
		defaults = append(defaults, fmt.Sprintf("drift: {interval: %s}", s.c.Drift))
	}
	var settings func(*testbed.Driver) string
	if s.c.proxied {
		var err error
		if settings, err = s.startProxies(ctx, a, drivers); err != nil {
			return a, err
		}
	}
	if err := s.WriteConfig(drivers, "{"+strings.Join(defaults, ", ")+"}", settings); err != nil {
		return a, err
	}
	kubeconfig, err := s.kubeconfig(ctx, hubNamespace, hubAccount)
	if err != nil {
		return a, err
	}
	o := testbed.HubOptions{Args: []string{"--profiling"}, Kubeconfig: kubeconfig}
	if s.c.fair {
		o.Args = append(o.Args, "--leader-election-namespace="+hubNamespace)
	}
	hub, err := s.StartHub(ctx, o)
	if err != nil {
		return a, err
	}
	a.processes, a.urls = append(a.processes, hub.Process), []string{hub.URL}
	return a, hub.WaitReady(ctx, len(drivers))
}

// startBaseline starts the baseline, which makes only the calls that correctness needs.
func startBaseline(ctx context.Context, s *stage) (*attacher, error) {
	a := &attacher{name: baselineName}
	kubeconfig, err := s.kubeconfig(ctx, metav1.NamespaceDefault, otherAccount)
	if err != nil {
		return a, err
	}
	args := []string{baselineCommand, kubeconfig}
	for _, d := range s.Drivers {
		args = append(args, d.Name+"="+d.Endpoint())
	}
	p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{
		Name: baselineName, Path: s.self, Args: args, LogPath: s.file("baseline.log"), ReadyLine: baselineReady,
	})
	if err == nil {
		a.processes = append(a.processes, p)
	}
	return a, err
}

// sidecars is one csi-attacher for each driver.
func sidecars(name string, flags ...string) competitor {
	return competitor{name, func(ctx context.Context, s *stage) (*attacher, error) {
		a := &attacher{name: name, sidecars: true}
		kubeconfig, err := s.kubeconfig(ctx, metav1.NamespaceDefault, otherAccount)
		if err != nil {
			return a, err
		}
		for i, d := range s.Drivers {
			address, err := testbed.FreeAddress(ctx)
			if err != nil {
				return a, err
			}
			p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{
				Name: fmt.Sprintf("%s of %s", name, d.Name), Path: s.sidecar, LogPath: s.file(fmt.Sprintf("csi-attacher-%03d.log", i)),
				Args: append([]string{"--csi-address", d.Socket, "--kubeconfig", kubeconfig, "--http-endpoint", address}, flags...),
			})
			if err != nil {
				return a, err
			}
			a.processes, a.urls = append(a.processes, p), append(a.urls, "http://"+address)
		}
		// They serve metrics once connected. They may still fill their caches then.
		return a, a.wait(ctx, func(ctx context.Context, url string) error {
			_, err := testbed.Metrics(ctx, url+"/metrics")
			return err
		})
	}}
}

// usage returns what all its processes take.
func (a *attacher) usage() (all usage) {
	for _, p := range a.processes {
		u := processUsage(p.PID())
		all = usage{cpu: all.cpu + u.cpu, resident: all.resident + u.resident, peak: all.peak + u.peak}
	}
	return all
}

// whileRuns calls act with a context that ends when one of the processes ends. The end of a process is an error.
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

// end ends all its processes with a signal and blocks until they have ended. They are no longer part of it.
func (a *attacher) end(ctx context.Context, with syscall.Signal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopGrace, fmt.Errorf("not ended %v after %v", stopGrace, with))
	defer cancel()
	for _, p := range a.processes {
		if err := p.Signal(with); err != nil {
			return err
		}
	}
	for _, p := range a.processes {
		if err := p.Wait(ctx); err != nil && with == syscall.SIGTERM {
			return err
		}
	}
	a.processes, a.urls = nil, nil
	return context.Cause(ctx)
}
