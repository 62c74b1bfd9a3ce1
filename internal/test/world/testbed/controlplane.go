package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// controlPlaneGrace is how long a control plane may take to stop; it needs one
// or two seconds on an idle machine.
const controlPlaneGrace = 2 * time.Minute

// ControlPlaneOptions say what control plane to start.
type ControlPlaneOptions struct {
	// Dir keeps its state and logs, and survives Stop: starting again on it
	// gives the same cluster on the same port. Empty: a temporary folder that
	// Stop removes.
	Dir string
	// Unlimited turns API Priority and Fairness off and queues or refuses no request, for
	// measurements of clients. Otherwise the API server has its defaults, which exempt only users
	// of the group system:masters, such as that of Kubeconfig.
	Unlimited bool
	// Binary of internal/test/world/controlplane. Empty: ControlPlaneBinary.
	Binary string
	// Log gets the progress of a build, if there is one; may be nil.
	Log io.Writer
}

// ControlPlane is a running Kubernetes control plane on loopback. Its methods
// may be called from any goroutine, but those that stop or start it one at a
// time.
type ControlPlane struct {
	opts    ControlPlaneOptions
	dir     string
	owned   bool // dir is temporary
	process *Process
	config  *rest.Config
	client  kubernetes.Interface
}

// StartControlPlane blocks until the control plane is ready to be used, about
// three seconds. ctx bounds the start only. The caller must Stop it.
func StartControlPlane(ctx context.Context, o ControlPlaneOptions) (*ControlPlane, error) {
	if o.Binary == "" {
		binary, err := ControlPlaneBinary(ctx, o.Log)
		if err != nil {
			return nil, err
		}
		o.Binary = binary
	}
	cp := &ControlPlane{opts: o, dir: o.Dir}
	if err := cp.makeDir(); err != nil {
		return nil, err
	}
	if err := cp.StartAgain(ctx); err != nil {
		return nil, errors.Join(err, cp.removeDir())
	}
	if err := cp.connect(); err != nil {
		cp.process.Kill()
		return nil, errors.Join(err, cp.removeDir())
	}
	return cp, nil
}

func (cp *ControlPlane) makeDir() error {
	if cp.dir != "" {
		if err := os.MkdirAll(cp.dir, 0o755); err != nil {
			return fmt.Errorf("make folder of the control plane: %w", err)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "attach-hub-plane-")
	if err != nil {
		return fmt.Errorf("make folder of the control plane: %w", err)
	}
	cp.dir, cp.owned = dir, true
	return nil
}

func (cp *ControlPlane) removeDir() error {
	if !cp.owned {
		return nil
	}
	return os.RemoveAll(cp.dir)
}

func (cp *ControlPlane) connect() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig of the control plane: %w", err)
	}
	cfg.QPS = -1 // no client-side limit
	cp.config = cfg
	proto := cp.RESTConfig()
	proto.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	proto.ContentType = runtime.ContentTypeProtobuf
	proto.UserAgent = "testbed"
	if cp.client, err = kubernetes.NewForConfig(proto); err != nil {
		return fmt.Errorf("make client of the control plane: %w", err)
	}
	return nil
}

// Dir has the state and the logs.
func (cp *ControlPlane) Dir() string { return cp.dir }

// RESTConfig returns a config of the caller's own, without a client-side rate
// limit, for JSON.
func (cp *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(cp.config) }

// Clientset is shared, has no rate limit and speaks protobuf.
func (cp *ControlPlane) Clientset() kubernetes.Interface { return cp.client }

// Process is the control plane's process of the moment, for example to pause it.
func (cp *ControlPlane) Process() *Process { return cp.process }

// StopAPIServer stops the whole control plane but keeps its state, also when
// the folder is temporary. It blocks until its port is free.
func (cp *ControlPlane) StopAPIServer(ctx context.Context) error {
	return cp.process.Stop(ctx, controlPlaneGrace)
}

// Kill is StopAPIServer without a warning (SIGKILL): clients see their
// connections break off in the middle.
func (cp *ControlPlane) Kill() { cp.process.Kill() }

// StartAgain starts a stopped control plane on the same state and port and
// blocks until it is ready. Clients of before go on with it.
func (cp *ControlPlane) StartAgain(ctx context.Context) error {
	args := []string{"--dir", cp.dir}
	if cp.opts.Unlimited {
		args = append(args, "--unlimited-requests")
	}
	p, err := StartProcess(ctx, ProcessOptions{
		Name:      "control plane",
		Path:      cp.opts.Binary,
		Args:      args,
		LogPath:   filepath.Join(cp.dir, "controlplane.log"),
		ReadyLine: "ready ",
	})
	if err != nil {
		return err
	}
	cp.process = p
	return nil
}

// Stop stops the control plane and removes its folder if that is temporary. It
// is no error when it is stopped already.
func (cp *ControlPlane) Stop(ctx context.Context) error {
	var err error
	if !cp.process.Ended() {
		err = cp.StopAPIServer(ctx)
	}
	return errors.Join(err, cp.removeDir())
}

// controllerManagerRole is the first argument with which internal/test/world/controlplane runs as kube-controller-manager only.
const controllerManagerRole = "kube-controller-manager"

// StartControllerManager starts a kube-controller-manager with the attach-detach controller beside a control plane. It acts as the
// ServiceAccount of the controller, to which API Priority and Fairness applies. logPath gets its output, appended. flags are
// further ones: QuickManager lifts the limits of its client, and "--controllers=NAME" adds a controller. It does not wait until
// it is ready. The caller must Stop or Kill it.
func (cp *ControlPlane) StartControllerManager(ctx context.Context, logPath string, flags ...string) (*Process, error) {
	return StartProcess(ctx, ProcessOptions{
		Name: controllerManagerRole, Path: cp.opts.Binary, LogPath: logPath,
		Args: append([]string{
			controllerManagerRole,
			"--kubeconfig=" + cp.Kubeconfig(),
			"--service-account-private-key-file=" + filepath.Join(cp.dir, "server.key"),
			"--use-service-account-credentials",
			"--controllers=persistentvolume-attach-detach-controller",
			"--leader-elect=false",
			"--secure-port=0",
		}, flags...),
	})
}

// QuickManager are flags of kube-controller-manager that lift the limits of its client.
var QuickManager = []string{"--kube-api-qps=1000", "--kube-api-burst=1000"}
