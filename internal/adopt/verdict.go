package adopt

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// verdict returns why a driver cannot be adopted, and what the user must know.
func verdict(p Plan, _ []Object) (no, notes []string) {
	if p.Driver == "" && p.Options.Mode != ModeDropIn {
		no = append(no, "the manifest does not say the driver's name: add --driver NAME")
	}
	if v := p.Socket.Volume; p.Options.Mode == ModeProxy && !p.hasDriver() {
		no = append(no, fmt.Sprintf("no other container of the Pod has the volume %s with the socket: the driver runs in another Pod, mostly the node plugin", v.Name))
	}
	if !p.Flags.LeaderElection && !p.Options.WithoutLeaderElection && p.Options.Mode != ModeDropIn {
		no = append(no, "csi-attacher runs without --leader-election, so no Lease keeps it apart from the hub")
	}
	if p.Flags.Kubeconfig != "" && p.Options.Mode != ModeDropIn {
		no = append(no, "csi-attacher has --kubeconfig: it works for another cluster than the one it runs in")
	}
	if !p.user().Known() && !p.Options.OpenShift {
		no = append(no, "the user of csi-attacher is that of its image, which is not root: add --run-as-user")
	}
	if p.LeaseWait().Seconds() > 15 && p.Options.Mode != ModeDropIn {
		notes = append(notes, fmt.Sprintf("after csi-attacher has ended, the hub waits up to %s for its Lease", p.LeaseWait()))
	}
	return no, notes
}

var sidecarImage = regexp.MustCompile(`(^|[-_/])(csi-|external-)?(provisioner|attacher|resizer|snapshotter|snapshot-metadata|health-monitor-controller|node-driver-registrar|livenessprobe|liveness-probe)([-_]|$)`)

// isSidecar reports whether a container is a sidecar of kubernetes-csi, which is a client of the socket.
func isSidecar(c corev1.Container) bool {
	image, _, _ := strings.Cut(path.Base(c.Image), "@")
	image, _, _ = strings.Cut(image, ":")
	return sidecarImage.MatchString(image)
}

// secretNames returns the Secrets that attaching needs.
func secretNames(p Plan, _ []Object) []SecretName {
	var all []SecretName
	for _, s := range p.Options.Secrets {
		namespace, name, ok := strings.Cut(s, "/")
		if !ok {
			namespace, name = p.Workload.Namespace, s
		}
		all = append(all, SecretName{namespace, name})
	}
	return all
}
