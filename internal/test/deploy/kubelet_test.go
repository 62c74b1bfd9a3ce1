package deploy_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// kubelet starts containers of Pods as processes on this machine. Their volumes are folders, and a mount path in their
// arguments is replaced by its folder. All Pods have the file system and the network of this machine, each with a
// loopback address of its own in place of its Pod IP.
type kubelet struct {
	plane  *testbed.ControlPlane
	client kubernetes.Interface
	dir    string // readable by every user
	// Programs that stand for images.
	hub, proxy, attacher string
	// setpriv starts a program as another user; empty if this process is not root.
	setpriv string
	network string // of the Pod IPs: "127.16.4."
	pods    atomic.Int32

	mu       sync.Mutex
	storages map[string]*fakecsi.Backend // by driver
}

// storage returns the storage of a driver, the same for all its Pods.
func (k *kubelet) storage(driver string) (*fakecsi.Backend, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.storages[driver] != nil {
		return k.storages[driver], nil
	}
	b, err := fakecsi.New(fakecsi.Options{Name: driver})
	if err == nil {
		k.storages[driver] = b
	}
	return b, err
}

// newKubelet builds the programs. As root it runs containers as their users, otherwise all as its own, and says so.
func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("a Pod needs a loopback address of its own, as on Linux")
	}
	k := &kubelet{plane: testbed.Shared(t), dir: testbed.ShortTempDir(t), network: fmt.Sprintf("127.%d.%d.", 16+os.Getpid()/250%200, os.Getpid()%250), storages: map[string]*fakecsi.Backend{}}
	k.client = k.plane.Clientset()
	if err := os.Chmod(k.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	k.hub, k.proxy = k.install(t, "./cmd/csi-attach-hub"), k.install(t, "./cmd/csi-attach-proxy")
	k.attacher = k.hub // the hub in its place: it takes the same flags and the same Lease
	if real := os.Getenv("CSI_ATTACHER"); real != "" {
		k.attacher = real
	}
	if os.Getuid() != 0 {
		t.Log("not root: all containers run as this user, so users and file modes are not tested")
		return k
	}
	var err error
	if k.setpriv, err = exec.LookPath("setpriv"); err != nil {
		t.Fatalf("to run containers as their users: %v: install util-linux", err)
	}
	return k
}

// install builds a command, and copies it to where every user may execute it.
func (k *kubelet) install(t *testing.T, command string) string {
	t.Helper()
	binary, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: command})
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(k.dir, filepath.Base(command))
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// standIn is a container of a driver in whose place a fake driver runs.
type standIn struct {
	driver    string // its name
	container string
	socket    string // path in the container
}

// runningPod is a Pod whose containers run. It is used by one goroutine at a time.
type runningPod struct {
	kubelet *kubelet
	pod     *corev1.Pod
	ip      string
	dir     string
	folders map[string]string           // of volumes, by the name of the volume
	running map[string]*testbed.Process // by the name of the container
	served  []*fakecsi.Server           // of the drivers
}

// start starts those containers of a Pod that are csi-attacher or of the hub's image, and the stand-ins for drivers.
// The other sidecars are not started. The caller must stop the Pod, also after an error.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod, drivers []standIn) (*runningPod, error) {
	n := k.pods.Add(1)
	p := &runningPod{kubelet: k, pod: pod, ip: fmt.Sprint(k.network, n), dir: filepath.Join(k.dir, fmt.Sprint("pod", n)),
		folders: map[string]string{}, running: map[string]*testbed.Process{}}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		return p, err
	}
	for _, d := range drivers { // sidecars wait for the driver
		for _, c := range pod.Spec.Containers {
			if c.Name == d.container {
				if err := p.startDriver(ctx, c, d); err != nil {
					return p, fmt.Errorf("container %s: %w", c.Name, err)
				}
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		if err := p.startContainer(ctx, c); err != nil {
			return p, fmt.Errorf("container %s: %w", c.Name, err)
		}
	}
	return p, nil
}

// stop ends the Pod as the kubelet does, and deletes it.
func (p *runningPod) stop(ctx context.Context) error {
	var last error
	// The driver last: the others may have calls in flight.
	for name, process := range p.running {
		err := process.Stop(ctx, 30*time.Second)
		if err != nil && (p.kubelet.attacher == p.kubelet.hub || !strings.Contains(err.Error(), "signal: terminated")) { // csi-attacher itself ends so
			last = err
		}
		delete(p.running, name)
	}
	for _, server := range p.served {
		server.Stop(ctx)
	}
	if err := deletePod(ctx, p.kubelet.client, p.pod); err != nil {
		return err
	}
	return last
}

// kill ends all processes at once.
func (p *runningPod) kill() {
	for _, process := range p.running {
		process.Kill()
	}
	for _, server := range p.served {
		server.Crash()
	}
}

// logs returns the end of the log of each container.
func (p *runningPod) logs() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(p.dir, "*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		fmt.Fprintf(&b, "--- %s of Pod %s\n%s\n", filepath.Base(file), p.pod.Name, text[max(0, len(text)-3000):])
	}
	return b.String()
}
