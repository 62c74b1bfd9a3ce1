package explain_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// cureTimeout is when a cure gives up to wait for what it wants to see.
const cureTimeout = 5 * time.Minute

// cureScene is a driver, a node, and a hub. All names begin with that of the scene,
// which is also the namespace of the driver; the hub's is hubSpace.
type cureScene struct {
	t        *testing.T
	ctx      context.Context
	name     string
	hubSpace string
	node     string
	kube     kubernetes.Interface
	world    *testbed.World
	driver   *testbed.Driver
	pv       testbed.PersistentVolume // of attach; prepare and breaks may change it

	entry []string // further lines of the driver's entry in drivers.yaml, without indentation; prepare may change them
	hub   *testbed.Hub

	env []string // of the commands
}

// shortLeases are flags for leases that a test can wait for.
var shortLeases = []string{"--leader-election-lease-duration=8s", "--leader-election-renew-deadline=6s", "--leader-election-retry-period=500ms"}

// newCureScene starts all but the hub. The control plane is the shared one if it is nil.
func newCureScene(t *testing.T, breakage string, plane *testbed.ControlPlane) *cureScene {
	t.Helper()
	_, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"}) // the time to build it does not count
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), cureTimeout)
	t.Cleanup(cancel)
	name := "cure-" + strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(breakage), "-"), "-")
	s := &cureScene{t: t, ctx: ctx, name: name, hubSpace: name + "-hub", node: name + "-node"}
	s.world = testbed.WorldForTest(t, ctx, testbed.WorldOptions{Plane: plane, Drivers: []fakecsi.Options{{Name: name}}, Nodes: []string{s.node}})
	s.kube, s.driver = s.world.Plane.Clientset(), s.world.Drivers[0]
	s.pv = testbed.PersistentVolume{Name: name, Driver: name}
	for _, space := range []string{s.name, s.hubSpace} {
		_, err := s.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{})
		s.must(err)
	}
	s.makeCommands()
	return s
}

func (s *cureScene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// until asks until it holds, and fails the test with what describes the present state if it does not come to that.
func (s *cureScene) until(what string, holds func() bool, state func() string) {
	s.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("it never came to this: %s; at last:\n%s", what, state())
		}
	}
}

// makeCommands makes the environment of the commands that explain prints.
func (s *cureScene) makeCommands() {
	s.t.Helper()
	bin := s.t.TempDir()
	env, err := s.world.Plane.LinkKubectl(bin)
	s.must(err)
	s.must(os.Symlink(s.hubBinary(), filepath.Join(bin, "csi-attach-hub")))
	s.env = env
}

func (s *cureScene) hubBinary() string {
	s.t.Helper()
	binary, err := testbed.SharedBinary(s.ctx, testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	s.must(err)
	return binary
}

// shell runs commands as a reader pastes them.
func (s *cureScene) shell(script string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, "sh", "-ec", script)
	cmd.Dir, cmd.Env = s.world.Dir, append(os.Environ(), s.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
}

// startHub starts the hub and waits until it answers.
func (s *cureScene) startHub() {
	s.t.Helper()
	entry := append([]string{"name: " + s.driver.Name, "endpoint: " + s.driver.Endpoint()}, s.entry...)
	s.must(os.WriteFile(s.world.ConfigPath(), []byte(testbed.ConfigHead+"drivers:\n  - "+strings.Join(entry, "\n    ")+"\n"), 0o600))
	args := append([]string{"--leader-election-namespace=" + s.name}, shortLeases...)
	hub, err := s.world.StartHub(s.ctx, testbed.HubOptions{Binary: s.hubBinary(), Kubeconfig: s.world.Plane.Kubeconfig(), Args: args})
	s.must(err)
	s.hub = hub
	testbed.KillAtEnd(s.t, hub.Process)
	s.until("the hub answers", func() bool { return s.view().Reached() }, func() string { return hub.LastLines(20) })
}

// playEvery is how often a player looks at its objects.
const playEvery = 50 * time.Millisecond

// play takes steps until the test ends.
func (s *cureScene) play(step func(context.Context)) {
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(playEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			step(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// attach asks for the volume on the node.
func (s *cureScene) attach() string {
	s.t.Helper()
	s.must(s.world.Cluster.Create(s.ctx, s.pv, testbed.VolumeAttachment{Name: s.name, Driver: s.driver.Name, Node: s.node, PersistentVolume: s.pv.Name}))
	return s.name
}

// waitAttached blocks until a VolumeAttachment is attached.
func (s *cureScene) waitAttached(name string) {
	s.t.Helper()
	s.must(s.world.Attachments.WaitFor(s.ctx, name+" is attached", func(all []*storagev1.VolumeAttachment) bool {
		for _, va := range all {
			if va.Name == name {
				return va.Status.Attached
			}
		}
		return false
	}))
}

func (s *cureScene) finder() *hubclient.Hub {
	s.t.Helper()
	hub, err := hubclient.Find(s.ctx, hubclient.Options{Server: s.hub.URL})
	s.must(err)
	return hub
}

func (s *cureScene) view() hubclient.View {
	s.t.Helper()
	hub := s.finder()
	defer hub.Close()
	return hub.View(s.ctx)
}

// explain answers a question as the command does.
func (s *cureScene) explain(question string) explain.Report {
	s.t.Helper()
	hub := s.finder()
	defer hub.Close()
	q, err := explain.ParseQuestion(question, metav1.NamespaceDefault)
	s.must(err)
	report, err := explain.Explain(s.ctx, q, explain.Sources{Kube: s.kube, Hub: hub, Namespace: s.hubSpace})
	s.must(err)
	return report
}

// explainedUntil asks until the answer stops at a verdict and has commands: hub and players need time to get there. It
// returns the stop and the text for people.
func (s *cureScene) explainedUntil(question string, want diagnosis.Verdict) (diagnosis.Diagnosis, string) {
	s.t.Helper()
	var report explain.Report
	var stop *diagnosis.Diagnosis
	s.until("explain stops at "+string(want), func() bool {
		report = s.explain(question)
		stop = stopOf(report)
		return stop != nil && stop.Verdict == want && len(stop.Commands) > 0
	}, func() string { return report.Text(statustable.Style{}, true) })
	if code := report.Result.ExitCode(); code != 1 {
		s.t.Errorf("the exit code is %d, want 1:\n%s", code, report.Text(statustable.Style{}, true))
	}
	return *stop, report.Text(statustable.Style{}, true)
}

// allWell waits until explain has nothing to say about a question.
func (s *cureScene) allWell(question string) {
	s.t.Helper()
	var report explain.Report
	s.until("explain says that all is well", func() bool {
		report = s.explain(question)
		return report.Result.ExitCode() == 0
	}, func() string { return report.Text(statustable.Style{}, true) })
}
