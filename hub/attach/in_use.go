package attach

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// InUse reports whether the kubelet of a node says that it uses a volume of the driver (status.volumesInUse). The kubelet
// says so before it mounts the volume, and until it has unmounted it. Its names are kubernetes.io/csi/DRIVER^HANDLE
// (GetVolumeName in pkg/volume/csi), and PLUGIN/VOLUME for an in-tree volume that it does not migrate.
func (d Driver) InUse(node *corev1.Node, handle string) bool {
	inTree, err := translator.GetInTreeNameFromCSIName(d.Name)
	return slices.ContainsFunc(node.Status.VolumesInUse, func(name corev1.UniqueVolumeName) bool {
		if string(name) == "kubernetes.io/csi/"+d.Name+"^"+handle {
			return true
		}
		// The handle is made of VOLUME, and ends like it.
		return err == nil && strings.HasPrefix(string(name), inTree+"/") && path.Base(string(name)) == path.Base(handle)
	})
}
