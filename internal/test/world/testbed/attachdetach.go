package testbed

import (
	"context"
	"errors"
	"path/filepath"
)

// controllerManagerRole is the first argument with which internal/test/world/controlplane runs as kube-controller-manager only.
const controllerManagerRole = "kube-controller-manager"

// AttachDetachOptions say how to run the attach-detach controller.
type AttachDetachOptions struct {
	// Args are further flags of kube-controller-manager, such as "--kube-api-qps=200". Without one, its defaults hold.
	Args    []string
	LogPath string // gets its output, appended
}

// StartAttachDetach starts a kube-controller-manager with the attach-detach controller alone, beside a control plane without
// ControllerManager. It differs from the one of ControllerManager: the limits of its client are the defaults, and it acts as the
// ServiceAccount of the controller, to which API Priority and Fairness applies. It does not wait until it is ready. The caller
// must Stop or Kill it.
func (cp *ControlPlane) StartAttachDetach(ctx context.Context, o AttachDetachOptions) (*Process, error) {
	if cp.opts.ControllerManager || cp.opts.PodGC {
		return nil, errors.New("start attach-detach controller: the control plane runs one already")
	}
	return StartProcess(ctx, ProcessOptions{
		Name: controllerManagerRole, Path: cp.opts.Binary, LogPath: o.LogPath,
		Args: append([]string{
			controllerManagerRole,
			"--kubeconfig=" + cp.Kubeconfig(),
			"--service-account-private-key-file=" + filepath.Join(cp.dir, "service-account.key"),
			"--use-service-account-credentials",
			"--controllers=persistentvolume-attach-detach-controller",
			"--leader-elect=false",
			"--secure-port=0",
		}, o.Args...),
	})
}
