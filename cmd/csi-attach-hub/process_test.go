package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// testTimeout is when a test gives up to wait for what it wants to see.
const testTimeout = 2 * time.Minute

// scene is a hub process and driver processes on a real API server.
type scene struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	plane   *testbed.ControlPlane
	cluster *testbed.Cluster
	watcher *testbed.Watcher[*storagev1.VolumeAttachment]
	prefix  string // of the names of this test's objects
	config  bytes.Buffer
	drivers []string
	hub     *testbed.Process // that was started last
}

func newScene(t *testing.T, prefix string) *scene {
	t.Helper()
	return newSceneOn(t, prefix, testbed.Shared(t))
}

func newSceneOn(t *testing.T, prefix string, plane *testbed.ControlPlane) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	w := testbed.WorldForTest(t, ctx, testbed.WorldOptions{Plane: plane})
	s := &scene{t: t, ctx: ctx, dir: w.Dir, plane: plane, cluster: w.Cluster, watcher: w.Attachments, prefix: prefix}
	s.config.WriteString(testbed.ConfigHead + "drivers:\n")
	return s
}

// binary returns the path of a program, built with the race detector.
func (s *scene) binary(pkg string) string {
	s.t.Helper()
	path, err := testbed.SharedBinary(s.ctx, testbed.BuildOptions{Package: pkg, Race: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return path
}

// entry adds a driver to drivers.yaml and returns its name and socket.
func (s *scene) entry(name string) (driver, socket string) {
	driver, socket = s.prefix+"-"+name, filepath.Join(s.dir, name)
	fmt.Fprintf(&s.config, "  - name: %s\n    endpoint: unix://%s\n", driver, socket)
	s.drivers = append(s.drivers, driver)
	return driver, socket
}

// startDriver serves a driver, whose storage outlives a crash of its server.
func (s *scene) startDriver(driver, socket string, knobs ...fakecsi.Knobs) *testbed.Driver {
	s.t.Helper()
	d := testbed.DriverForTest(s.t, driver, socket)
	for _, k := range knobs {
		if err := d.Backend.Set(k); err != nil {
			s.t.Fatal(err)
		}
	}
	return d
}

// shortLeases are flags for leases that a test can wait for.
var shortLeases = []string{"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms"}

func (s *scene) startHub(args ...string) *testbed.Process {
	s.t.Helper()
	config := filepath.Join(s.dir, "drivers.yaml")
	if err := os.WriteFile(config, s.config.Bytes(), 0o600); err != nil {
		s.t.Fatal(err)
	}
	p, err := testbed.StartHub(s.ctx, testbed.HubOptions{
		Binary: s.binary("./cmd/csi-attach-hub"), Kubeconfig: s.plane.Kubeconfig(), Config: config,
		LogPath: filepath.Join(s.dir, "hub.log"), Args: append(slices.Clone(shortLeases), args...),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	testbed.KillAtEnd(s.t, p)
	s.hub = p
	return p
}

// attachments makes volumes of a driver and returns what attaches them to a node.
func (s *scene) attachments(driver string, n int) []testbed.Object {
	s.t.Helper()
	node := driver + "-node"
	s.create(testbed.CSINode{Node: node, Drivers: map[string]string{driver: "id-" + driver}})
	var volumes, attachments []testbed.Object
	for i := range n {
		name := fmt.Sprintf("%s-%d", driver, i)
		volumes = append(volumes, testbed.PersistentVolume{Name: name, Driver: driver})
		attachments = append(attachments, testbed.VolumeAttachment{Name: name, Driver: driver, Node: node, PersistentVolume: name})
	}
	s.create(volumes...)
	return attachments
}

func (s *scene) create(objects ...testbed.Object) {
	s.t.Helper()
	if err := s.cluster.Create(s.ctx, objects...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) delete(objects ...testbed.Object) {
	s.t.Helper()
	if err := s.cluster.Delete(s.ctx, objects...); err != nil {
		s.t.Fatal(err)
	}
}

// waitFor waits until this test's VolumeAttachments are as they should be.
func (s *scene) waitFor(what string, holds func(own []*storagev1.VolumeAttachment) bool) {
	s.t.Helper()
	err := s.watcher.WaitFor(s.ctx, what, func(all []*storagev1.VolumeAttachment) bool {
		var own []*storagev1.VolumeAttachment
		for _, va := range all {
			if strings.HasPrefix(va.Spec.Attacher, s.prefix+"-") {
				own = append(own, va)
			}
		}
		return holds(own)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func attachedAtLeast(n int) func([]*storagev1.VolumeAttachment) bool {
	return func(all []*storagev1.VolumeAttachment) bool { return countAttached(all) >= n }
}

func countAttached(all []*storagev1.VolumeAttachment) int {
	n := 0
	for _, va := range all {
		if va.Status.Attached {
			n++
		}
	}
	return n
}

func (s *scene) books(backend *fakecsi.Backend) fakecsi.Books {
	s.t.Helper()
	b := backend.Books()
	if err := b.Check(); err != nil {
		s.t.Error(err)
	}
	return b
}

// checkExit stops a hub and checks that it ended by itself, in order.
func (s *scene) checkExit(p *testbed.Process) {
	s.t.Helper()
	if err := p.Stop(s.ctx, 30*time.Second); err != nil {
		s.t.Errorf("the hub did not end with exit code 0 on SIGTERM: %v", err)
	}
}

func TestDriverKilledDuringAttachesComesBackAndAllIsAttached(t *testing.T) {
	s := newScene(t, "killed-driver")
	driver, socket := s.entry("d")
	served := s.startDriver(driver, socket, fakecsi.AttachLatency(fakecsi.Latency{Base: 50 * time.Millisecond}))
	hub := s.startHub()
	attachments := s.attachments(driver, 100)
	s.create(attachments...)
	s.waitFor("some attached", attachedAtLeast(10))
	served.Server.Crash()
	if err := served.Server.Start(); err != nil {
		t.Fatal(err)
	}
	backend := served.Backend
	s.waitFor("all attached", testbed.AllAttached(100))
	if got := len(s.books(backend).Attached); got != 100 {
		t.Errorf("%d volumes attached, want 100", got)
	}
	s.delete(attachments...)
	s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	if got := len(s.books(backend).Attached); got != 0 {
		t.Errorf("%d volumes attached, want none", got)
	}
	s.checkExit(hub)
}

func TestHubKilledDuringAttachesAndDetachesFinishesThemWhenStartedAgain(t *testing.T) {
	s := newScene(t, "killed-hub")
	driver, socket := s.entry("d")
	backend := s.startDriver(driver, socket, fakecsi.AttachLatency(fakecsi.Latency{Base: 50 * time.Millisecond})).Backend
	hub := s.startHub()
	attachments := s.attachments(driver, 200)
	going, staying := attachments[:100], attachments[100:]
	s.create(going...)
	s.waitFor("the first half attached", testbed.AllAttached(100))

	s.delete(going...)
	s.create(staying...)
	s.waitFor("some attached and some detached", func(all []*storagev1.VolumeAttachment) bool {
		attached := 0
		for _, va := range all {
			if va.Status.Attached && va.DeletionTimestamp == nil {
				attached++
			}
		}
		return attached >= 10 && len(all) <= 190
	})
	hub.Kill()
	hub = s.startHub()
	s.waitFor("the second half attached, the first gone", testbed.AllAttached(100))
	b := s.books(backend)
	if len(b.Attached) != 100 {
		t.Errorf("%d volumes attached, want 100", len(b.Attached))
	}
	for _, o := range staying {
		if name := o.(testbed.VolumeAttachment).Name; len(b.Attached[name]) != 1 {
			t.Errorf("%s is not attached", name)
		}
	}
	s.delete(staying...)
	s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	if got := len(s.books(backend).Attached); got != 0 {
		t.Errorf("%d volumes attached, want none", got)
	}
	s.checkExit(hub)
}

func TestSIGTERMLetsCallsInFlightEndAndStartsNoOther(t *testing.T) {
	s := newScene(t, "sigterm")
	driver, socket := s.entry("d")
	backend := s.startDriver(driver, socket, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}}).Backend
	hub := s.startHub("--shutdown-grace", "1m")
	s.create(s.attachments(driver, 40)...)
	inFlight := 10 // half of the default workers
	if err := backend.Wait(s.ctx, func(b fakecsi.Books) bool { return b.AttachInFlight.Now == inFlight }); err != nil {
		t.Fatal(err)
	}
	if err := hub.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	logged(s, hub, "Stopping, waiting for calls in flight")
	if err := backend.Set(fakecsi.Knobs{ReleaseAll: true}); err != nil {
		t.Fatal(err)
	}
	if err := hub.Wait(s.ctx); err != nil {
		t.Errorf("the hub ended with %v, want exit code 0", err)
	}
	s.waitFor("those in flight attached", attachedAtLeast(inFlight))
	b := s.books(backend)
	if got := b.Methods[fakecsi.ControllerPublishVolume].Begun; got != inFlight || len(b.Attached) != inFlight {
		t.Errorf("%d publishes and %d volumes attached, want %d: those that were in flight", got, len(b.Attached), inFlight)
	}
}

// logged waits until the hub's log has the words. The log is a file that only the
// hub writes, so this looks at it until the deadline.
func logged(s *scene, hub *testbed.Process, words string) {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if data, err := os.ReadFile(hub.LogPath()); err == nil && strings.Contains(string(data), words) {
			return
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("the hub's log never said %q", words)
		}
	}
}

func TestHalfOfAHundredDriversAwayNeitherHurtsTheOthersNorFloodsTheLog(t *testing.T) {
	s := newScene(t, "many")
	var there []string
	backends := map[string]*fakecsi.Backend{}
	for i := range 100 {
		driver, socket := s.entry(fmt.Sprintf("d%d", i))
		if i%2 == 1 {
			continue // its socket does not exist
		}
		there, backends[driver] = append(there, driver), testbed.DriverForTest(t, driver, socket).Backend
	}
	// A hundred leases that are renewed twice a second are more than a busy machine can do.
	hub := s.startHub("--leader-election-lease-duration=15s", "--leader-election-renew-deadline=10s", "--leader-election-retry-period=2s")
	var all []testbed.Object
	for _, driver := range there {
		all = append(all, s.attachments(driver, 4)...)
	}
	s.create(all...)
	s.waitFor("all attached", testbed.AllAttached(len(all)))
	s.delete(all...)
	s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	for driver, backend := range backends {
		if got := len(backend.Books().Attached); got != 0 {
			t.Errorf("%s: %d volumes attached, want none", driver, got)
		}
	}
	s.checkExit(hub)
	log, err := os.ReadFile(hub.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range s.drivers {
		// That it waits for its lease, is ready and is drained, or that it cannot be reached: this took less than a minute.
		if n := strings.Count(string(log), fmt.Sprintf("driver=%q", driver)); n < 1 || n > 3 {
			t.Errorf("%d lines about %s in the log, want 1 to 3", n, driver)
		}
	}
}
