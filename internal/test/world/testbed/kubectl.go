package testbed

import (
	"fmt"
	"os"
	"path/filepath"
)

// LinkKubectl puts a kubectl into a folder that is to be on the PATH of a command, and returns the environment of that
// command: kubectl and csi-attach-hub then find the API server of this control plane. The kubectl is part of the program
// of internal/test/world/controlplane, in the version of the API server.
func (cp *ControlPlane) LinkKubectl(dir string) (env []string, err error) {
	if err := os.Symlink(cp.opts.Binary, filepath.Join(dir, "kubectl")); err != nil {
		return nil, fmt.Errorf("link kubectl: %w", err)
	}
	return []string{"KUBECONFIG=" + cp.Kubeconfig(), "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}, nil
}
