package main

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// callGrace is how long calls may take to end after the hub's SIGTERM.
const callGrace = 3 * time.Second

// hubOptions are those of every hub of a scene.
var hubOptions = testbed.HubOptions{ShutdownGrace: callGrace, Verbosity: 2}

// scene is a world with a driver of each behaviour, bound claims and a hub. Its folder has all its
// files.
type scene struct {
	*testbed.World // nil before start
	folder         folder
	opts           sceneOptions
	workload       workload
	planeBinary    string
	running        []sceneDriver
	onAttachment   func(was, now *storagev1.VolumeAttachment) // may be nil
	hub            *testbed.Hub                               // nil before start
}

// sceneDriver is a running driver and its behaviour.
type sceneDriver struct {
	behaviour
	*testbed.Driver
}

// newScene makes the folder and builds what is missing, which may take minutes.
// It starts nothing; the caller must call close.
func newScene(ctx context.Context, o sceneOptions) (*scene, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &scene{opts: o, workload: newWorkload(behaviours, o.pods, o.nodes)}
	var err error
	if s.planeBinary, err = testbed.ControlPlaneBinary(ctx, o.out); err != nil {
		return nil, err
	}
	if s.folder, err = newFolder(o.out); err != nil {
		return nil, err
	}
	s.opts.hub, err = s.folder.hub(ctx, o.hub, testbed.BuildOptions{})
	return s, err
}

// start starts everything and makes all objects but the Pods. It blocks until the hub is
// connected to every driver and leads it. The caller must call stop, also after an error.
func (s *scene) start(ctx context.Context) (err error) {
	o := testbed.WorldOptions{
		Dir: s.folder.dir, Hub: s.opts.hub, Nodes: s.workload.nodes, OnAttachment: s.onAttachment,
		ControlPlane: testbed.ControlPlaneOptions{ControllerManager: true, Binary: s.planeBinary},
	}
	for _, r := range behaviours {
		o.Drivers = append(o.Drivers, fakecsi.Options{Name: r.driver()})
	}
	if s.World, err = testbed.StartWorld(ctx, o); err != nil {
		return err
	}
	for i, r := range behaviours {
		s.running = append(s.running, sceneDriver{r, s.Drivers[i]})
		if err := s.Drivers[i].Backend.Set(r.knobs(s.workload.of(r.driver()))); err != nil {
			return fmt.Errorf("prepare driver %s: %w", r.short, err)
		}
	}
	if err := s.WriteConfig(s.Drivers, configDefaults(s.opts.stuckAfter), settings); err != nil {
		return err
	}
	if s.hub, err = s.StartHub(ctx, hubOptions); err != nil {
		return err
	}
	return testbed.WhileRunning(ctx, s.Processes(), func(ctx context.Context) error {
		if err := s.makeClaims(ctx, s.workload); err != nil {
			return err
		}
		return s.hub.WaitReady(ctx, len(behaviours))
	})
}

// sceneDriver returns the driver of that short name.
func (s *scene) sceneDriver(short string) sceneDriver {
	for _, p := range s.running {
		if p.short == short {
			return p
		}
	}
	panic("no driver is called " + short)
}

// waitFor blocks until holds is true of the driver's books.
func (p sceneDriver) waitFor(ctx context.Context, what string, holds func(fakecsi.Books) bool) error {
	err := p.Backend.Wait(ctx, holds)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("wait for %s of driver %s: %w", what, p.short, err)
}

// stop stops all that runs, as World.Stop.
func (s *scene) stop(ctx context.Context) error {
	if s.World == nil {
		return nil
	}
	return s.Stop(ctx)
}

// close closes the folder, which stays if that is asked for here or by a flag.
func (s *scene) close(keep bool) error { return s.folder.close(keep || s.opts.keepLogs) }
