package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
const testTimeout = 10 * time.Minute

// scene is hub processes and drivers on a real API server.
type scene struct {
	*testbed.World
	t       *testing.T
	ctx     context.Context
	binary  string       // of the hub
	prefix  string       // of the names of this test's objects
	config  bytes.Buffer // drivers.yaml
	drivers []string     // in drivers.yaml
	hub     *testbed.Hub // that was started last
}

func newScene(t *testing.T, prefix string) *scene {
	t.Helper()
	plane := testbed.Shared(t)
	// Before the clock runs: a build may take minutes.
	binary, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub", Race: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	s := &scene{World: testbed.WorldForTest(t, ctx, testbed.WorldOptions{Plane: plane, Hub: binary}), t: t, ctx: ctx, binary: binary, prefix: prefix}
	s.config.WriteString(testbed.ConfigHead + "drivers:\n")
	return s
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// serve runs a driver in the test's process, on the socket of its name. It does not put it into drivers.yaml.
func (s *scene) serve(name string, knobs ...fakecsi.Knobs) *testbed.Driver {
	s.t.Helper()
	name = s.prefix + "-" + name
	d := testbed.DriverForTest(s.t, name, filepath.Join(s.Dir, name))
	for _, k := range knobs {
		s.must(d.Backend.Set(k))
	}
	return d
}

// driver runs a driver that is in drivers.yaml with settings, such as "mode: paused".
func (s *scene) driver(name, settings string, knobs ...fakecsi.Knobs) *testbed.Driver {
	s.t.Helper()
	d := s.serve(name, knobs...)
	s.enter(d, settings)
	return d
}

// enter puts a driver into drivers.yaml.
func (s *scene) enter(d *testbed.Driver, settings string) {
	s.config.WriteString(d.Entry(settings))
	s.drivers = append(s.drivers, d.Name)
}

// configure replaces what drivers.yaml says from its third line on.
func (s *scene) configure(format string, args ...any) {
	s.config.Reset()
	fmt.Fprintf(&s.config, testbed.ConfigHead+format, args...)
}

// rewrite replaces drivers.yaml under the hub.
func (s *scene) rewrite() {
	s.t.Helper()
	s.must(os.WriteFile(s.ConfigPath()+".new", s.config.Bytes(), 0o600))
	s.must(os.Rename(s.ConfigPath()+".new", s.ConfigPath()))
}

var (
	// longLeases are flags for leases that the hub of a busy machine does not lose.
	longLeases = []string{"--leader-election-lease-duration=90s", "--leader-election-renew-deadline=60s", "--leader-election-retry-period=500ms"}
	// shortLeases are flags for leases whose expiry a test can wait for.
	shortLeases = []string{"--leader-election-lease-duration=8s", "--leader-election-renew-deadline=6s"}
)

// startHub starts a hub with further flags, and waits until it has started. Its leases are long, in the namespace default.
func (s *scene) startHub(args ...string) *testbed.Process {
	s.t.Helper()
	s.rewrite()
	hub, err := s.StartHub(s.ctx, testbed.HubOptions{Args: slices.Concat(longLeases, []string{"--leader-election-namespace=default"}, args)})
	s.must(err)
	testbed.KillAtEnd(s.t, hub.Process)
	s.hub = hub
	s.until(func() bool {
		return testbed.Get(s.ctx, hub.URL+"/api/v1/drivers", func(io.Reader) error { return nil }) == nil
	},
		func() string { return "the hub has not started" })
	return hub.Process
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
	s.must(s.Cluster.Create(s.ctx, objects...))
}

func (s *scene) delete(objects ...testbed.Object) {
	s.t.Helper()
	s.must(s.Cluster.Delete(s.ctx, objects...))
}

// waitFor waits until this test's VolumeAttachments are as they should be.
func (s *scene) waitFor(what string, holds func(own []*storagev1.VolumeAttachment) bool) {
	s.t.Helper()
	s.must(s.Attachments.WaitFor(s.ctx, what, func(all []*storagev1.VolumeAttachment) bool {
		return holds(slices.DeleteFunc(slices.Clone(all), func(va *storagev1.VolumeAttachment) bool {
			return !strings.HasPrefix(va.Spec.Attacher, s.prefix+"-")
		}))
	}))
}

func attachedAtLeast(n int) func([]*storagev1.VolumeAttachment) bool {
	return func(all []*storagev1.VolumeAttachment) bool { return countAttached(all) >= n }
}

func countAttached(all []*storagev1.VolumeAttachment) (n int) {
	for _, va := range all {
		if va.Status.Attached {
			n++
		}
	}
	return n
}

// until asks until it holds; what says what did not.
func (s *scene) until(holds func() bool, what func() string) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatal(what())
		}
	}
}

// log returns all that a hub has logged.
func (s *scene) log(hub *testbed.Process) string {
	s.t.Helper()
	log, err := os.ReadFile(hub.LogPath())
	s.must(err)
	return string(log)
}

// logged waits until the hub's log has the words so often. Only the hub writes the file, so this looks at it until the deadline.
func (s *scene) logged(hub *testbed.Process, words string, times int) {
	s.t.Helper()
	s.until(func() bool { return strings.Count(s.log(hub), words) >= times },
		func() string { return fmt.Sprintf("the hub's log did not say %q %d times", words, times) })
}

// get returns what the hub serves at a path.
func (s *scene) get(path string) string {
	s.t.Helper()
	var text []byte
	s.must(testbed.Get(s.t.Context(), s.hub.URL+path, func(body io.Reader) (err error) {
		text, err = io.ReadAll(body)
		return err
	}))
	return string(text)
}

// getJSON reads an answer of the hub's API.
func (s *scene) getJSON(path string, into any) {
	s.t.Helper()
	s.must(json.Unmarshal([]byte(s.get(path)), into))
}

// ask runs a command about the hub that was started last, and returns what it printed and its exit code.
func (s *scene) ask(args ...string) (stdout, stderr string, code int) {
	return s.askAs(s.Plane.Kubeconfig(), append(args, "--server", s.hub.URL)...)
}

func (s *scene) askAs(kubeconfig string, args ...string) (stdout, stderr string, code int) {
	return runHere(append(args, "--kubeconfig", kubeconfig)...)
}

// asked repeats a command until its output has the words.
func (s *scene) asked(words string, args ...string) (out string) {
	s.t.Helper()
	var problems string
	s.until(func() bool { out, problems, _ = s.ask(args...); return strings.Contains(out, words) },
		func() string {
			return fmt.Sprintf("%v never printed %q, the last answer:\n%s%s", args, words, out, problems)
		})
	return out
}

// checkExit stops a hub and checks that it ended by itself, in order.
func (s *scene) checkExit(hub *testbed.Process) {
	s.t.Helper()
	if err := hub.Stop(s.ctx, 30*time.Second); err != nil {
		s.t.Errorf("the hub did not end with exit code 0 on SIGTERM: %v", err)
	}
}

func TestSIGTERMLetsCallsInFlightEndAndStartsNoOther(t *testing.T) {
	t.Parallel()
	s := newScene(t, "sigterm")
	driver := s.driver("d", "", fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	backend := driver.Backend
	hub := s.startHub("--shutdown-grace", "1m")
	s.create(s.attachments(driver.Name, 40)...)
	inFlight := 10 // half of the default workers
	s.must(backend.Wait(s.ctx, func(b fakecsi.Books) bool { return b.AttachInFlight.Now == inFlight }))
	s.must(hub.Signal(syscall.SIGTERM))
	s.logged(hub, "Stopping, waiting for calls in flight", 1)
	s.must(backend.Set(fakecsi.Knobs{ReleaseAll: true}))
	if err := hub.Wait(s.ctx); err != nil {
		t.Errorf("the hub ended with %v, want exit code 0", err)
	}
	s.waitFor("those in flight attached", attachedAtLeast(inFlight))
	b := backend.Books()
	if err := b.Check(); err != nil {
		t.Error(err)
	}
	if got := b.Methods[fakecsi.ControllerPublishVolume].Begun; got != inFlight || len(b.Attached) != inFlight {
		t.Errorf("%d publishes and %d volumes attached, want %d: those that were in flight", got, len(b.Attached), inFlight)
	}
}
