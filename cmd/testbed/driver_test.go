package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// asTestbed, in the environment, makes the test binary be testbed itself.
const asTestbed = "TESTBED_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asTestbed) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// process is a testbed that runs.
type process struct {
	*exec.Cmd
	greeting string
}

// start runs testbed and returns when it has printed its first line.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(os.Environ(), asTestbed+"=1")
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended already
		_ = p.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no line from testbed %v: %v", args, err)
	}
	p.greeting = strings.TrimSpace(line)
	return p
}

func dial(t *testing.T, endpoint string) csi.ControllerClient {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return csi.NewControllerClient(conn)
}

func publishRequest(volume string) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{
		VolumeId: volume,
		NodeId:   "n1",
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		},
	}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestDriverServesUntilItIsTerminated(t *testing.T) {
	ctx := testContext(t)
	dir := shortDir(t)
	socket, control := filepath.Join(dir, "csi.sock"), filepath.Join(dir, "control.sock")
	p := start(t, "driver", "--name", "a.example.com", "--endpoint", "unix://"+socket,
		"--control", "unix://"+control, "--fail-publish", "1:unavailable", "--hang=ControllerUnpublishVolume")
	want := "driver a.example.com listens on unix://" + socket + ", control on unix://" + control
	if p.greeting != want {
		t.Errorf("it says %q, want %q", p.greeting, want)
	}
	client := dial(t, "unix://"+socket)
	if _, err := client.ControllerPublishVolume(ctx, publishRequest("v")); status.Code(err) != codes.Unavailable {
		t.Errorf("the first publish got %v", err)
	}
	if _, err := client.ControllerPublishVolume(ctx, publishRequest("v")); err != nil {
		t.Errorf("the second publish got %v", err)
	}

	c, err := fakecsi.NewControlClient("unix://" + control)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	unpublished := make(chan error, 1)
	go func() {
		_, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: "n1"})
		unpublished <- err
	}()
	if err := c.Wait(ctx, func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 }); err != nil {
		t.Fatal(err)
	}
	if err := c.Set(ctx, fakecsi.Knobs{ReleaseAll: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-unpublished; err != nil {
		t.Errorf("the unpublish that was released got %v", err)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("after SIGTERM it ends with %v", err)
	}
	for _, path := range []string{socket, control} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("it left %s behind: %v", path, err)
		}
	}
}

func TestDriverThatIsKilledKnowsWhatIsAttached(t *testing.T) {
	ctx := testContext(t)
	dir := shortDir(t)
	args := []string{"driver", "--name", "a.example.com", "--endpoint", "unix://" + filepath.Join(dir, "csi.sock"),
		"--control", "unix://" + filepath.Join(dir, "control.sock"), "--state", filepath.Join(dir, "state")}
	p := start(t, args...)
	if _, err := dial(t, "unix://"+filepath.Join(dir, "csi.sock")).ControllerPublishVolume(ctx, publishRequest("v")); err != nil {
		t.Fatal(err)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // it says that it was killed

	start(t, args...) // in spite of the sockets that are left over
	c, err := fakecsi.NewControlClient("unix://" + filepath.Join(dir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	books, err := c.Books(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !books.IsAttached("v", "n1") {
		t.Errorf("attached: %v", books.Attached)
	}
}

func TestWrongFlagsGetOneClearError(t *testing.T) {
	needed := []string{"driver", "--name", "a.example.com", "--endpoint", "unix:///nowhere/csi.sock"}
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"driver"}, "--name and --endpoint are required"},
		{[]string{"fly"}, `unknown command "fly"`},
		{append(needed, "--fail-publish", "0:Unavailable"), `"0" is no count`},
		{append(needed, "--fail-publish", "2:Sometimes"), `"Sometimes" is no gRPC error code`},
		{append(needed, "--fail-unpublish", "OK"), `"OK" is no gRPC error code`},
		{append(needed, "--hang=Fly"), `unknown method "Fly"`},
		{append(needed, "--capabilities", "FLY"), `unknown capability "FLY"`},
		{append(needed, "--latency", "-1s"), "negative"},
		{append(needed, "--knobs", `{"fly":true}`), `--knobs: unknown knob "fly": choose from capabilities, clearFaults`},
		{append(needed, "--control", "0.0.0.0:7001"), "not a loopback address"},
		{append(needed, "--control", "7001"), "write unix:///path or 127.0.0.1:port"},
		{[]string{"driver", "--name", "a", "--endpoint", "csi.sock"}, `endpoint "csi.sock"`},
		{needed, "/nowhere/csi.sock"},
		{[]string{"demo", "--pods", "3"}, "--pods 3: there are 4 drivers"},
		{[]string{"demo", "--nodes", "0"}, "--nodes 0: at least one"},
		{[]string{"demo", "--timeout", "0s"}, "--timeout 0s: it must be positive"},
		{[]string{"sandbox", "--hub", "/nowhere/hub"}, "--hub: stat /nowhere/hub"},
	}
	for _, tt := range tests {
		var stderr strings.Builder
		if code := run(tt.args, io.Discard, &stderr); code != 1 {
			t.Errorf("%v: exit code %d", tt.args, code)
		}
		if got := stderr.String(); !strings.Contains(got, tt.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%v: says %q, want one line with %q", tt.args, got, tt.want)
		}
	}
}

func TestFlagsBecomeKnobs(t *testing.T) {
	f := driverFlags{
		name: "a", endpoint: "unix:///x", latency: time.Second, jitter: time.Millisecond, maxVolumesPerNode: 3,
		hang: []string{"Probe"}, failUnpublish: []string{"Internal"}, knobs: `{"notReady":true}`,
	}
	d, err := f.driver()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range attachMethods {
		if got := d.knobs.Latency[m]; got != (fakecsi.Latency{Base: time.Second, Jitter: time.Millisecond}) {
			t.Errorf("latency of %s: %+v", m, got)
		}
	}
	want := fakecsi.Fault{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}
	if len(d.knobs.Fail) != 1 || d.knobs.Fail[0] != want {
		t.Errorf("faults: %+v", d.knobs.Fail)
	}
	if len(d.knobs.Hang) != 1 || d.knobs.Hang[0].Method != fakecsi.Probe {
		t.Errorf("hangs: %+v", d.knobs.Hang)
	}
	if k := d.knobs; *k.MaxVolumesPerNode != 3 || !*k.NotReady {
		t.Errorf("knobs: %+v", k)
	}
	if d.options.Capabilities == nil {
		t.Error("no capabilities became the default ones")
	}
}
