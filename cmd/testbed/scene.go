package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// hubOptions are those of every hub of a scene.
var hubOptions = testbed.HubOptions{ShutdownGrace: 3 * time.Second, Verbosity: 2}

// sceneOptions say how large a scene is and what it runs.
type sceneOptions struct {
	pods       int           // each with a volume of its own, spread over the drivers
	nodes      int           // number of nodes
	timeout    time.Duration // of the set-up, and of a demo until its end
	hub        string        // binary of cmd/csi-attach-hub
	stuckAfter time.Duration // in drivers.yaml; 0 means 30s: nobody waits for the hub's default, which is long
	out        io.Writer
}

// newSceneCommand adds to a command what runs it, and the flag that names the hub.
func newSceneCommand(cmd *cobra.Command, o *sceneOptions, run func(context.Context, sceneOptions) error) *cobra.Command {
	o.pods, o.nodes, o.timeout = 40, 4, 5*time.Minute
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.out = cmd.OutOrStdout()
		return run(cmd.Context(), *o)
	}
	hubFlag(cmd, &o.hub)
	return cmd
}

// scene is a world with a driver of each behaviour, bound claims and a hub. Its folder has all its files.
type scene struct {
	*testbed.World // nil before start
	folder         string
	opts           sceneOptions
	workload       workload
	planeBinary    string
	onAttachment   func(was, now *storagev1.VolumeAttachment) // may be nil
	manager        *testbed.Process                           // nil before start
	hub            *testbed.Hub                               // nil before start
}

// newScene makes the folder and builds the control plane if it is missing, which may take minutes. It starts
// nothing; the caller must call end.
func newScene(ctx context.Context, o sceneOptions) (s *scene, err error) {
	s = &scene{opts: o, workload: newWorkload(o.pods, o.nodes)}
	if s.planeBinary, err = testbed.ControlPlaneBinary(ctx, o.out); err != nil {
		return nil, err
	}
	if s.opts.hub, err = filepath.Abs(o.hub); err == nil {
		s.folder, err = newFolder()
	}
	return s, err
}

// start starts everything and makes all objects but the Pods. It blocks until the hub is connected to every driver and
// leads it. The caller must call end, also after an error.
func (s *scene) start(ctx context.Context) (err error) {
	o := testbed.WorldOptions{
		Dir: s.folder, Hub: s.opts.hub, Nodes: s.workload.nodes, OnAttachment: s.onAttachment,
		ControlPlane: testbed.ControlPlaneOptions{Binary: s.planeBinary},
	}
	for _, b := range behaviours {
		o.Drivers = append(o.Drivers, fakecsi.Options{Name: b.driver()})
	}
	if s.World, err = testbed.StartWorld(ctx, o); err != nil {
		return err
	}
	for i, b := range behaviours {
		if err := s.Drivers[i].Backend.Set(b.knobs(s.workload.of(b.driver()))); err != nil {
			return err
		}
	}
	if err := s.WriteConfig(s.Drivers, configDefaults(cmp.Or(s.opts.stuckAfter, 30*time.Second)), settings); err != nil {
		return err
	}
	if s.hub, err = s.StartHub(ctx, hubOptions); err != nil {
		return err
	}
	if s.manager, err = s.Plane.StartControllerManager(ctx, filepath.Join(s.Dir, "kube-controller-manager.log"), testbed.QuickManager...); err != nil {
		return err
	}
	return testbed.WhileRunning(ctx, s.processes(), func(ctx context.Context) error {
		if err := s.makeClaims(ctx, s.workload); err != nil {
			return err
		}
		return s.hub.WaitReady(ctx, len(behaviours))
	})
}

// processes are those whose end is an error.
func (s *scene) processes() []*testbed.Process { return append(s.Processes(), s.manager) }

// makeClaims makes the volumes of a workload, each bound to a claim of its name.
func (s *scene) makeClaims(ctx context.Context, w workload) error {
	return testbed.Each(ctx, 16, w.volumes, func(ctx context.Context, v volume) error {
		pv := testbed.PersistentVolume{Name: v.name, Driver: v.driver, Claim: v.name}
		if err := s.Cluster.Create(ctx, pv); err != nil {
			return err
		}
		return s.Cluster.BindClaim(ctx, testbed.PersistentVolumeClaim{Name: v.name, PersistentVolume: v.name})
	})
}

// driver returns the driver of a short name; nil: there is none.
func (s *scene) driver(short string) *testbed.Driver {
	for i, b := range behaviours {
		if b.short == short {
			return s.Drivers[i]
		}
	}
	return nil
}

// end stops all that runs and removes the folder, or says where it is if err is not nil. It returns err and its own errors.
func (s *scene) end(ctx context.Context, err error) error {
	ctx = context.WithoutCancel(ctx)
	if s.manager != nil {
		s.manager.Kill()
	}
	if s.World != nil {
		err = errors.Join(err, s.Stop(ctx))
	}
	return errors.Join(err, closeFolder(s.folder, err != nil, s.opts.out))
}

// newFolder makes a temporary folder. Its path is short, for sockets.
func newFolder() (string, error) { return os.MkdirTemp("", "attach-hub-") }

// closeFolder removes a folder, or says where it is if it is to be kept.
func closeFolder(dir string, keep bool, out io.Writer) error {
	if keep {
		fmt.Fprintln(out, "The logs are kept in", dir)
		return nil
	}
	return os.RemoveAll(dir)
}
