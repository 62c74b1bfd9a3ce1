package testbed

import (
	"context"
	"path/filepath"
)

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
			"--service-account-private-key-file=" + filepath.Join(cp.dir, "service-account.key"),
			"--use-service-account-credentials",
			"--controllers=persistentvolume-attach-detach-controller",
			"--leader-elect=false",
			"--secure-port=0",
		}, flags...),
	})
}

// QuickManager are flags of kube-controller-manager that lift the limits of its client.
var QuickManager = []string{"--kube-api-qps=1000", "--kube-api-burst=1000"}
