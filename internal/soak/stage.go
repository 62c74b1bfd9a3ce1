package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// nodes is how many there are for the volumes to be attached to.
	nodes = 8
	// hubGrace is how long the hub may take to end.
	hubGrace = 30 * time.Second
)

// stage is a control plane, drivers in this process, and a hub.
type stage struct {
	o       Options
	plane   *testbed.ControlPlane
	hub     *testbed.Process
	url     string // of the hub
	nodes   []string
	drivers []driver
	watcher *testbed.Watcher[*storagev1.VolumeAttachment]
	churns  []*testbed.Churn
}

type driver struct {
	name    string
	server  *fakecsi.Server
	backend *fakecsi.Backend
}

// start starts everything but the load. Whatever it returns, stop is needed.
func (s *stage) start(ctx context.Context) (err error) {
	if s.plane, err = testbed.StartControlPlane(ctx, testbed.ControlPlaneOptions{Dir: filepath.Join(s.o.Dir, "plane"), Log: s.o.Out}); err != nil {
		return err
	}
	if s.watcher, err = testbed.WatchVolumeAttachments(ctx, s.plane.Clientset(), nil); err != nil {
		return err
	}
	config := "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\ndrivers:\n"
	ids := map[string]string{}
	for i := range s.o.Drivers {
		endpoint := fmt.Sprintf("unix://%s/d%d", s.o.Dir, i)
		d, err := s.startDriver(fmt.Sprintf("driver-%d.soak.example.com", i), endpoint)
		if err != nil {
			return err
		}
		s.drivers = append(s.drivers, d)
		config += fmt.Sprintf("  - {name: %s, endpoint: %q}\n", d.name, endpoint)
		ids[d.name] = "id"
	}
	for i := range nodes {
		node := fmt.Sprintf("soak-node-%d", i)
		if err := s.cluster().Create(ctx, testbed.CSINode{Node: node, Drivers: ids}); err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
	}
	return s.startHub(ctx, config)
}

func (s *stage) cluster() *testbed.Cluster { return testbed.NewCluster(s.plane.Clientset()) }

func (s *stage) startDriver(name, endpoint string) (driver, error) {
	backend, err := fakecsi.New(fakecsi.Options{Name: name, CountersOnly: true})
	if err != nil {
		return driver{}, err
	}
	err = backend.Set(fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{
		fakecsi.ControllerPublishVolume:   {Base: s.o.Latency},
		fakecsi.ControllerUnpublishVolume: {Base: s.o.Latency},
	}})
	if err != nil {
		return driver{}, err
	}
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: endpoint})
	if err != nil {
		return driver{}, err
	}
	return driver{name, server, backend}, server.Start()
}

func (s *stage) startHub(ctx context.Context, config string) error {
	path := filepath.Join(s.o.Dir, "drivers.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return fmt.Errorf("write drivers.yaml: %w", err)
	}
	address, err := testbed.FreeAddress(ctx)
	if err != nil {
		return err
	}
	s.url = "http://" + address
	s.hub, err = testbed.StartHub(ctx, testbed.HubOptions{
		Binary: s.o.Hub, Kubeconfig: s.plane.Kubeconfig(), Config: path, HTTPEndpoint: address,
		LogPath: filepath.Join(s.o.Dir, "hub.log"), Args: []string{"--profiling"},
	})
	return err
}

// load begins to attach and detach.
func (s *stage) load(ctx context.Context) error {
	for i, d := range s.drivers {
		c, err := testbed.StartChurn(ctx, testbed.ChurnOptions{Cluster: s.cluster(), Watcher: s.watcher, Driver: d.name,
			Volumes: s.o.Volumes, Nodes: s.nodes, Prefix: fmt.Sprintf("soak-%d", i), Seed: s.o.Seed<<16 + uint64(i)})
		if err != nil {
			return err
		}
		s.churns = append(s.churns, c)
	}
	return nil
}

// unload ends the load, and blocks until all is detached.
func (s *stage) unload(ctx context.Context) error {
	var errs []error
	for _, c := range s.churns {
		errs = append(errs, c.Stop(ctx))
	}
	return errors.Join(errs...)
}

// check looks into the books of the drivers after unload.
func (s *stage) check() error {
	var wrong []string
	for _, d := range s.drivers {
		b := d.backend.Books()
		if b.ViolationCount > 0 || b.MaxInFlightPerVolume > 1 || len(b.Attached) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d violations, %d calls at once for one volume, %d volumes still attached",
				d.name, b.ViolationCount, b.MaxInFlightPerVolume, len(b.Attached)))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the books of the drivers are not in order:\n%s", strings.Join(wrong, "\n"))
	}
	return nil
}

// stop ends all that runs, after the context of the load has ended. It is an error when the
// hub does not end as it should.
func (s *stage) stop(ctx context.Context) error {
	for _, c := range s.churns {
		_ = c.Stop(ctx) // whatever went wrong with it is known, or is the end of that context
	}
	var errs []error
	if s.hub != nil {
		errs = append(errs, s.hub.Stop(ctx, hubGrace))
	}
	for _, d := range s.drivers {
		d.server.Crash()
	}
	if s.watcher != nil {
		s.watcher.Close()
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Stop(ctx))
	}
	return errors.Join(errs...)
}
