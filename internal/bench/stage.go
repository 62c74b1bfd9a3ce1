package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/bench/floor"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// stopGrace is how long a process may take to end.
const stopGrace = 20 * time.Second

// stage is where the competitors of a case meet: a control plane, drivers in this
// process, nodes and volumes. The competitors are processes, one at a time.
type stage struct {
	opts        Options
	c           Case
	dir         string // sockets and logs; its path is short
	plane       *testbed.ControlPlane
	drivers     []*driver
	names       []string // of the drivers
	nodes       []string
	volumes     []volume // that are attached and detached
	warmUp      []volume // one of each driver, before anything counts
	clock       *stopwatch
	attachments *testbed.Watcher[*storagev1.VolumeAttachment]
	say         func(format string, args ...any)
}

// setStage starts everything but the competitors and makes all objects. The caller must
// close the stage, whatever it returns.
func setStage(ctx context.Context, o Options, c Case) (*stage, error) {
	s := &stage{opts: o, c: c, clock: &stopwatch{}, names: driverNames(c.Drivers)}
	s.say = func(format string, args ...any) {
		fmt.Fprintf(o.Progress, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), c.Name, fmt.Sprintf(format, args...))
	}
	s.clock.reset(isAttached, 0)
	for i := range c.Nodes {
		s.nodes = append(s.nodes, fmt.Sprintf("node-%03d", i))
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "attach-hub-bench-"); err != nil {
		return s, fmt.Errorf("make folder: %w", err)
	}
	s.say("starting a control plane and %d drivers", c.Drivers)
	if s.plane, err = testbed.StartControlPlane(ctx, testbed.ControlPlaneOptions{Dir: filepath.Join(s.dir, "controlplane"), Log: o.Progress}); err != nil {
		return s, err
	}
	for _, name := range s.names {
		d, err := startDriver(s.dir, fakecsi.Options{Name: name, CountersOnly: !c.booked}, c.Latency)
		if err != nil {
			return s, err
		}
		s.drivers = append(s.drivers, d)
	}
	if err := s.furnish(ctx); err != nil {
		return s, err
	}
	s.attachments, err = testbed.WatchVolumeAttachments(ctx, s.client(), s.clock.observe)
	return s, err
}

func (s *stage) client() kubernetes.Interface { return s.plane.Clientset() }

// furnish makes nodes and volumes: those that are attached, and others that only fill
// the caches.
func (s *stage) furnish(ctx context.Context) error {
	began := time.Now()
	ids := func(node string) map[string]string {
		drivers := map[string]string{}
		for _, name := range s.names {
			drivers[name] = floor.NodeID(node)
		}
		return drivers
	}
	cluster := testbed.NewCluster(s.client())
	for _, node := range s.nodes {
		if err := cluster.Create(ctx, testbed.Node{Name: node}, testbed.CSINode{Node: node, Drivers: ids(node)}); err != nil {
			return err
		}
	}
	s.volumes = spread("pv", s.names, s.nodes, s.c.Each)
	s.warmUp = spread("warm", s.names, s.nodes, 1)
	others := append(spread("other", s.names, s.nodes, max(0, s.c.Volumes/s.c.Drivers-s.c.Each-1)), s.warmUp...)
	create := func(guarded bool) func(context.Context, volume) error {
		return func(ctx context.Context, v volume) error { return v.create(ctx, s.client(), guarded) }
	}
	if err := each(ctx, s.volumes, create(!s.c.unguarded)); err != nil {
		return err
	}
	made := len(s.volumes)
	for some := range slices.Chunk(others, 10_000) {
		if err := each(ctx, some, create(true)); err != nil {
			return err
		}
		if made += len(some); made < len(s.volumes)+len(others) {
			s.say("made %d of %d PersistentVolumes", made, len(s.volumes)+len(others))
		}
	}
	took := time.Since(began)
	s.say("made %d PersistentVolumes in %.1fs", made, took.Seconds())
	return nil
}

// file is the path of a file of a competitor.
func (s *stage) file(name string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(name, " ", "-"))
}

// close stops everything and removes the folder, unless it is to be kept.
func (s *stage) close(ctx context.Context) error {
	if s.attachments != nil {
		s.attachments.Close()
	}
	for _, d := range s.drivers {
		d.stop(ctx)
	}
	var errs []error
	if s.plane != nil {
		errs = append(errs, s.plane.Stop(ctx))
	}
	if s.opts.Keep {
		s.say("the logs are kept in %s", s.dir)
	} else if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
