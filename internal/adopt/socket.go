package adopt

import (
	"cmp"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// defaultAddress is csi-attacher's default of --csi-address.
const defaultAddress = "/run/csi/socket"

// Socket is where the driver listens, as csi-attacher sees it.
type Socket struct {
	Path    string             // in the container, absolute
	Mount   corev1.VolumeMount // that has the socket
	Volume  corev1.Volume
	problem string // why no other container can open the socket; "" if one can
}

// socketOf returns the socket of an address, with the volume that has it.
func socketOf(pod corev1.PodSpec, c corev1.Container, address string) Socket {
	file := cmp.Or(address, defaultAddress)
	if scheme, _, found := strings.Cut(file, ":"); found && scheme != "unix" && !strings.HasPrefix(file, "/") {
		if _, _, err := net.SplitHostPort(file); err == nil || strings.Contains(file, "://") {
			return Socket{Path: file, problem: fmt.Sprintf("csi-attacher has no socket but the network address %q: write the entry of drivers.yaml with this address by hand", file)}
		}
	}
	file = path.Clean("/" + strings.TrimPrefix(strings.TrimPrefix(file, "unix:"), "//"))
	s := Socket{Path: file}
	for _, m := range c.VolumeMounts { // the deepest mount has the file
		at := strings.TrimSuffix(path.Clean(m.MountPath), "/")
		if (file == at || strings.HasPrefix(file, at+"/")) && len(m.MountPath) > len(s.Mount.MountPath) {
			s.Mount = m
		}
	}
	if s.Mount.Name == "" {
		return Socket{Path: file, problem: fmt.Sprintf("the socket %q of --csi-address is in no volume of csi-attacher: no other container can open it", file)}
	}
	i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == s.Mount.Name })
	if i < 0 {
		return Socket{Path: file, problem: fmt.Sprintf("the Pod has no volume %q, which csi-attacher mounts for its socket", s.Mount.Name)}
	}
	s.Volume = pod.Volumes[i]
	return s
}

// ofNode reports whether the socket is that of a node plugin, in a folder of the kubelet on the node.
func (s Socket) ofNode() bool {
	return s.Volume.HostPath != nil && strings.Contains(path.Clean(s.Volume.HostPath.Path)+"/", "/kubelet/plugins/")
}
