package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// hubGrace is how long calls may take to end after the hub's SIGTERM.
	hubGrace = 3 * time.Second
	// endGrace is how much longer a process may take to end.
	endGrace = 10 * time.Second
)

// scene is a control plane, the drivers of the cast and a hub, all of them
// processes, with nodes and bound claims. All that is on disk is in its folder.
type scene struct {
	opts     sceneOptions
	dir      string
	workload workload
	binaries struct{ hub, plane string }
	plane    *testbed.ControlPlane
	hub      *testbed.Process
	address  string // where the hub serves HTTP, host:port
	players  []*player
}

// player is a driver that runs.
type player struct {
	role
	process *testbed.Process
	control *fakecsi.ControlClient
}

// newScene makes the folder and builds what is missing, which may take minutes.
// It starts nothing; the caller must call close.
func newScene(ctx context.Context, o sceneOptions) (*scene, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	// Short: paths of sockets have narrow limits.
	dir, err := os.MkdirTemp("", "attach-hub-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	s := &scene{opts: o, dir: dir, workload: newWorkload(cast, o.pods, o.nodes)}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *scene) build(ctx context.Context) (err error) {
	if s.binaries.plane, err = testbed.ControlPlaneBinary(ctx, s.opts.out); err != nil {
		return err
	}
	if s.binaries.hub = s.opts.hub; s.binaries.hub == "" {
		fmt.Fprintln(s.opts.out, "Building csi-attach-hub.")
		s.binaries.hub = filepath.Join(s.dir, "csi-attach-hub")
		return testbed.Build(ctx, testbed.BuildOptions{Package: "./cmd/csi-attach-hub", Output: s.binaries.hub})
	}
	s.binaries.hub, err = filepath.Abs(s.binaries.hub)
	return err
}

func (s *scene) configPath() string { return filepath.Join(s.dir, "drivers.yaml") }
func (s *scene) hubLog() string     { return filepath.Join(s.dir, "hub.log") }

// start starts all processes and makes all objects but the Pods. It blocks until
// the hub is connected to every driver. Whatever it returns, stop is needed.
func (s *scene) start(ctx context.Context) error {
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.startPlane(gctx) })
	group.Go(func() error { return s.startDrivers(gctx) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := s.startHub(ctx); err != nil {
		return err
	}
	return s.whileAllRun(ctx, func(ctx context.Context) error {
		if err := s.furnish(ctx); err != nil {
			return err
		}
		for _, p := range s.players {
			if err := p.waitFor(ctx, "the hub's connection", connected); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *scene) startPlane(ctx context.Context) (err error) {
	s.plane, err = testbed.StartControlPlane(ctx, testbed.ControlPlaneOptions{
		Dir:               filepath.Join(s.dir, "controlplane"),
		ControllerManager: true,
		Binary:            s.binaries.plane,
	})
	return err
}

func (s *scene) startDrivers(ctx context.Context) error {
	for _, r := range cast {
		process, err := testbed.StartDriver(ctx, testbed.DriverOptions{
			Binary: s.opts.testbed, Args: r.args(s.dir), LogPath: r.log(s.dir), Name: "driver " + r.short,
		})
		if err != nil {
			return err
		}
		p := &player{role: r, process: process}
		s.players = append(s.players, p)
		if p.control, err = fakecsi.NewControlClient("unix://" + r.control(s.dir)); err != nil {
			return err
		}
		if err := p.control.Set(ctx, r.knobs(s.workload.of(r.driver()))); err != nil {
			return fmt.Errorf("prepare driver %s: %w", r.short, err)
		}
	}
	return nil
}

func (s *scene) startHub(ctx context.Context) (err error) {
	if err := os.WriteFile(s.configPath(), []byte(driversFile(cast, s.dir)), 0o644); err != nil {
		return fmt.Errorf("write drivers.yaml: %w", err)
	}
	if _, err := registry.ParseFile(s.configPath()); err != nil {
		return fmt.Errorf("check the hub's drivers.yaml: %w", err)
	}
	if s.address, err = testbed.FreeAddress(ctx); err != nil {
		return err
	}
	s.hub, err = testbed.StartHub(ctx, testbed.HubOptions{
		Binary: s.binaries.hub, Kubeconfig: s.plane.Kubeconfig(), Config: s.configPath(), HTTPEndpoint: s.address,
		ShutdownGrace: hubGrace, Verbosity: 2, LogPath: s.hubLog(),
	})
	return err
}

// page is the URL of the hub's status page.
func (s *scene) page() string { return "http://" + s.address + "/" }

// furnish makes all that the Pods need. With claims that are not bound yet the
// Pods would wait for the binder and not for the hub.
func (s *scene) furnish(ctx context.Context) error {
	if err := testbed.NewCluster(s.plane.Clientset()).Create(ctx, s.workload.surroundings()...); err != nil {
		return err
	}
	claims, err := testbed.WatchPersistentVolumeClaims(ctx, s.plane.Clientset(), nil)
	if err != nil {
		return err
	}
	defer claims.Close()
	return claims.WaitFor(ctx, "claims to be bound", testbed.AllBound(len(s.workload.volumes)))
}

// connected holds when the hub knows what the driver can do.
func connected(b fakecsi.Books) bool {
	return b.Methods[fakecsi.ControllerGetCapabilities].Ended > 0
}

// waitFor blocks until the driver's books are as they should be.
func (p *player) waitFor(ctx context.Context, what string, holds func(fakecsi.Books) bool) error {
	err := p.control.Wait(ctx, holds)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("wait for %s of driver %s: %w", what, p.short, err)
}

// player returns the driver that plays the role of that name.
func (s *scene) player(short string) *player {
	for _, p := range s.players {
		if p.short == short {
			return p
		}
	}
	panic("no driver plays " + short)
}

// processes are those that were started, by their names.
func (s *scene) processes() map[string]*testbed.Process {
	processes := map[string]*testbed.Process{}
	if s.plane != nil {
		processes["control plane"] = s.plane.Process()
	}
	if s.hub != nil {
		processes["hub"] = s.hub
	}
	for _, p := range s.players {
		processes["driver "+p.short] = p.process
	}
	return processes
}

// onEnd calls ended for each process that ends before ctx does, and blocks
// until ctx ends.
func (s *scene) onEnd(ctx context.Context, ended func(name string, p *testbed.Process)) {
	var group errgroup.Group
	for name, p := range s.processes() {
		group.Go(func() error {
			select {
			case <-p.Done():
				ended(name, p)
			case <-ctx.Done():
			}
			return nil
		})
	}
	_ = group.Wait() // none of them returns an error
	<-ctx.Done()
}

// whileAllRun acts, with a context that ends when one of the processes does. Then
// that is the error.
func (s *scene) whileAllRun(ctx context.Context, act func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer fail(nil)
	watching.Go(func() {
		s.onEnd(ctx, func(name string, p *testbed.Process) {
			fail(fmt.Errorf("the %s has ended, exit code %d", name, p.ExitCode()))
		})
	})
	err := act(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		// Not everything tells why a context has ended.
		return fmt.Errorf("%w: meanwhile: %w", cause, err)
	}
	return err
}

// stop stops all that runs, the hub first, and blocks until it has ended. It is
// an error when a process does not end as it should; how those ended that do not
// run any more is no matter here.
func (s *scene) stop(ctx context.Context) error {
	var errs []error
	if s.hub != nil {
		errs = append(errs, stopProcess(ctx, s.hub, hubGrace+endGrace))
	}
	for _, p := range s.players {
		if p.control != nil {
			p.control.Close()
		}
		errs = append(errs, stopProcess(ctx, p.process, endGrace))
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Stop(ctx))
	}
	return errors.Join(errs...)
}

func stopProcess(ctx context.Context, p *testbed.Process, grace time.Duration) error {
	select {
	case <-p.Done():
		return nil
	default:
		return p.Stop(ctx, grace)
	}
}

// close removes the folder, or says where it is if it is to be kept.
func (s *scene) close(keep bool) error {
	if keep || s.opts.keep {
		fmt.Fprintln(s.opts.out, "The logs are kept in", s.dir)
		return nil
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}
