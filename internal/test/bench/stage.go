package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/progress"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// stopGrace bounds the end of a process.
	stopGrace = 20 * time.Second
	// inParallel is how many requests this program has in flight. More are not faster on a small
	// machine.
	inParallel = 32
)

// stage is the world of a case and its volumes, for one competitor at a time.
type stage struct {
	*testbed.World // nil if its start has failed
	opts           Options
	c              Case
	dir            string
	names          []string // of the drivers
	volumes        []volume // to attach and detach
	warmUp         []volume // one of each driver, to attach before bench counts
	clock          *stopwatch
	tenant         *tenant          // nil: none
	manager        *testbed.Process // kube-controller-manager; nil: none
	series         []Series         // of all turns, for charts: a turn adds its own
	stacks         []Stack          // of all turns, for charts: a turn adds its own
	*narrator
}

// setStage starts everything but the competitors and makes all objects. The caller must close the
// stage, also after an error.
func setStage(ctx context.Context, o Options, c Case) (*stage, error) {
	s := &stage{opts: o, c: c, clock: &stopwatch{}}
	s.narrator = narrate(o.Progress, c.Name, s.clock, newForecast(o, c))
	s.clock.reset(isAttached, 0)
	var err error
	if s.dir, err = os.MkdirTemp("", "attach-hub-bench-"); err != nil {
		return s, fmt.Errorf("make folder: %w", err)
	}
	s.say("starting a control plane; drivers: %d", c.Drivers)
	options := testbed.WorldOptions{
		Dir: s.dir, Hub: o.Hub, ControlPlane: testbed.ControlPlaneOptions{Unlimited: !c.fair, Log: o.Progress},
		Latency: fakecsi.Latency{Base: c.Latency}, OnAttachment: s.clock.observe,
	}
	for i := range c.Drivers {
		s.names = append(s.names, fmt.Sprintf("driver-%03d.bench.example.com", i))
		options.Drivers = append(options.Drivers, fakecsi.Options{Name: s.names[i], CountersOnly: !c.booked})
	}
	for i := range c.Nodes {
		options.Nodes = append(options.Nodes, fmt.Sprintf("node-%03d", i))
	}
	if s.World, err = testbed.StartWorld(ctx, options); err != nil {
		return s, err
	}
	return s, s.makeVolumes(ctx)
}

func (s *stage) client() kubernetes.Interface { return s.Plane.Clientset() }

// each calls do for each volume, many at once, in about their order.
func each(ctx context.Context, volumes []volume, do func(context.Context, volume) error) error {
	return testbed.Each(ctx, inParallel, volumes, do)
}

// makeVolumes makes the PersistentVolumes: those to attach, and others that only fill caches.
func (s *stage) makeVolumes(ctx context.Context) error {
	began := time.Now()
	s.volumes = spread("pv", s.names, s.Nodes, s.c.Each)
	s.warmUp = spread("warm", s.names, s.Nodes, 1)
	others := append(spread("other", s.names, s.Nodes, max(0, s.c.Volumes/s.c.Drivers-s.c.Each-1)), s.warmUp...)
	create := func(finalizer bool) func(context.Context, volume) error {
		return func(ctx context.Context, v volume) error { return v.create(ctx, s.client(), finalizer) }
	}
	for i := range s.volumes {
		s.volumes[i].shared = s.c.shared
	}
	if err := each(ctx, s.volumes, create(!s.c.fresh)); err != nil {
		return err
	}
	made := len(s.volumes)
	for some := range slices.Chunk(others, 10_000) {
		if err := each(ctx, some, create(true)); err != nil {
			return err
		}
		if made += len(some); made < len(s.volumes)+len(others) {
			whole := len(s.volumes) + len(others)
			s.say("made %d of %d PersistentVolumes, %s", made, whole, progress.Left(time.Since(began), float64(made), float64(whole)))
		}
	}
	took := time.Since(began)
	s.say("made %d PersistentVolumes in %.1f s", made, took.Seconds())
	if s.c.shared {
		s.volumes = onEach(s.volumes, s.Nodes)
	}
	return nil
}

// file returns the path of a file of a competitor.
func (s *stage) file(name string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(name, " ", "-"))
}

// close stops everything and removes the folder unless Options.Keep is set.
func (s *stage) close(ctx context.Context) error {
	var errs []error
	defer s.narrator.stop()
	if s.tenant != nil {
		s.tenant.close()
	}
	if s.manager != nil {
		s.manager.Kill() // it does not handle SIGTERM, and keeps no state
	}
	if s.World != nil {
		errs = append(errs, s.Stop(ctx))
	}
	if s.opts.Keep {
		s.say("the logs are kept in %s", s.dir)
	} else if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
