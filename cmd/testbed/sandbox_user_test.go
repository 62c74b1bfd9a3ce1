package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// user is someone in a shell that has sourced the env file of a running sandbox.
type user struct {
	t           *testing.T
	env         string // path
	attachments *testbed.Watcher[*storagev1.VolumeAttachment]
}

// announced is an output that closes ready when it has the last line of the guide.
type announced struct {
	mu    sync.Mutex
	text  strings.Builder
	ready chan struct{}
	once  sync.Once
}

func (a *announced) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := a.text.Write(p)
	if strings.Contains(a.text.String(), "Ctrl-C here") {
		a.once.Do(func() { close(a.ready) })
	}
	return n, err
}

func (a *announced) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}

// startSandbox runs a small sandbox until the test ends, and checks that it leaves nothing behind.
func startSandbox(t *testing.T) (u *user) {
	t.Helper()
	hub, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	dir := testbed.ShortTempDir(t)
	t.Setenv("TMPDIR", dir)
	t.Setenv(asTestbed, "1") // the sandbox calls this program testbed
	out := &announced{ready: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runSandbox(ctx, sceneOptions{pods: 8, nodes: 2, timeout: 10 * time.Minute, stuckAfter: 2 * time.Second, hub: hub, out: out})
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		checkEmpty(t, dir)
		if t.Failed() {
			t.Logf("it said:\n%s", out)
		}
	})
	t.Cleanup(stop)
	select {
	case <-out.ready:
	case err := <-ended:
		ended <- err
		t.Fatal("the sandbox has ended")
	}
	found := regexp.MustCompile(`source (\S+/env)`).FindStringSubmatch(out.String())
	if found == nil {
		t.Fatal("the guide names no env file")
	}
	u = &user{t: t, env: found[1]}
	config, err := clientcmd.BuildConfigFromFlags("", u.variable("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	if u.attachments, err = testbed.WatchVolumeAttachments(t.Context(), kubernetes.NewForConfigOrDie(config), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.attachments.Close)
	if !strings.Contains(out.String(), recipes) {
		t.Error("the guide has no recipes")
	}
	return u
}

// sh runs a command, and returns what it prints and its exit code.
func (u *user) sh(command string) (string, int) {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), "sh", "-c", ". "+u.env+"\n"+command)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		u.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// variable returns a variable of the env file.
func (u *user) variable(name string) string {
	u.t.Helper()
	out, _ := u.sh(`printf %s "$` + name + `"`)
	if out == "" {
		u.t.Fatalf("%s does not set %s", u.env, name)
	}
	return out
}

// must waits until something is so.
func (u *user) must(what string, holds func(context.Context) error) {
	u.t.Helper()
	if err := testbed.Insist(testContext(u.t), what, holds); err != nil {
		u.t.Fatal(err)
	}
}

// attached is the state of the attachment of a Pod's volume: "none", "attached", or "waiting" with the text of its error.
func (u *user) attached(pod string) string {
	for _, va := range u.attachments.List() {
		switch {
		case va.Spec.Source.PersistentVolumeName == nil || *va.Spec.Source.PersistentVolumeName != pod:
		case va.Status.Attached:
			return "attached"
		case va.Status.AttachError != nil:
			return "waiting: " + va.Status.AttachError.Message
		default:
			return "waiting"
		}
	}
	return "none"
}

// pod returns a condition: the state of a Pod's volume contains a text.
func (u *user) pod(pod, want string) func(context.Context) error {
	return func(context.Context) error {
		if got := u.attached(pod); !strings.Contains(got, want) {
			return fmt.Errorf("volume %s: %q, want %q", pod, got, want)
		}
		return nil
	}
}

// hangs returns a condition: a publish of the volume has no answer.
func (u *user) hangs(driver, volume string) func(context.Context) error {
	return func(context.Context) error {
		out, _ := u.sh("testbed sandbox books " + driver)
		var books fakecsi.Books
		err := json.Unmarshal([]byte(out), &books)
		for _, call := range books.Running {
			if call.Volume == volume {
				return nil
			}
		}
		return errors.Join(err, errors.New("no call for it in flight"))
	}
}

// listens returns a condition: something listens, or nothing does.
func (u *user) listens(network, address string, want bool) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(address, "http://"))
		if err == nil {
			err = conn.Close()
		}
		if (err == nil) != want {
			return fmt.Errorf("%s listens: %v, want %v", address, err == nil, want)
		}
		return nil
	}
}

// mode returns a condition: the first hub has a driver in a mode.
func (u *user) mode(short, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		var d status.Driver
		if err := ask(ctx, u.variable("HUB")+"/api/v1/drivers/"+short+".demo.csi.example.com", &d); err != nil {
			return err
		}
		if d.Mode != want {
			return fmt.Errorf("mode %s, want %s", d.Mode, want)
		}
		return nil
	}
}

// stuck returns a condition: the hub counts a stuck attach of a driver.
func (u *user) stuck(short string) func(context.Context) error {
	return func(ctx context.Context) error {
		families, err := testbed.Metrics(ctx, u.variable("HUB")+"/metrics")
		if err != nil {
			return err
		}
		for _, m := range families["attach_hub_stuck"].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "driver" && strings.HasPrefix(l.GetValue(), short+".") && m.GetGauge().GetValue() > 0 {
					return nil
				}
			}
		}
		return errors.New("attach_hub_stuck is 0")
	}
}

// follow runs commands that must succeed.
func (u *user) follow(commands []string) {
	u.t.Helper()
	for _, c := range commands {
		if out, code := u.sh(c); code != 0 {
			u.t.Fatalf("%s: exit code %d\n%s", c, code, out)
		}
	}
}

// look runs commands that must show a driver. The answer of explain may be that a volume waits.
func (u *user) look(commands []string) {
	u.t.Helper()
	for _, c := range commands {
		out, code := u.sh(c)
		waits := strings.Contains(c, " explain ") && code == 1
		if code != 0 && !waits || !strings.Contains(out, ".demo.csi.example.com") {
			u.t.Errorf("%s: exit code %d\n%s", c, code, out)
		}
	}
}
