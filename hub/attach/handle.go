package attach

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// HandleOf returns the handle of the volume that a VolumeAttachment has, or may have, attached, or else that of the volume
// that it specifies. It returns "" if it is not known.
func HandleOf(f Inputs) string {
	if NotedTarget(f.VolumeAttachment) != (Target{}) || f.VolumeAttachment.Status.Attached {
		handle, _, _ := f.attached()
		return handle
	}
	if now, err := f.source(); err == nil {
		return now.Handle
	}
	return ""
}

// attached returns the handle of the volume that a VolumeAttachment has, or may have, attached: the
// noted handle, or else the handle of its inline specification or PersistentVolume. It also returns
// that volume, nil if the PersistentVolume is gone or has another handle: it is another volume then.
// The error says why the handle is not known.
func (f Inputs) attached() (string, *Source, error) {
	va, pv := f.VolumeAttachment, f.PersistentVolume
	noted := NotedTarget(va).VolumeHandle
	now, err := f.source()
	switch {
	case noted == "" && err != nil:
		return "", nil, err
	case noted == "":
		if pv != nil && va.CreationTimestamp.Before(&pv.Created) && OfAnotherVolume(va, now.Handle) {
			return "", nil, fmt.Errorf("the handle of the attached volume is not known: persistentvolume %q was recreated with another one, %q, after the VolumeAttachment was created, and the VolumeAttachment notes none: "+
				"write the handle of the attached volume into its annotation %s, or make sure that the volume is detached from node %q and remove the finalizer %s",
				pv.Name, now.Handle, AnnotationVolumeHandle, va.Spec.NodeName, Finalizer(va.Spec.Attacher))
		}
		return now.Handle, now, nil
	case err != nil || now.Handle != noted:
		return noted, nil, nil
	}
	return noted, now, nil
}

// attachedAgain returns the volume that an attached VolumeAttachment has, to attach it again. The
// error says why it is not known.
func (f Inputs) attachedAgain() (*Source, error) {
	handle, source, err := f.attached()
	if err != nil || source != nil {
		return source, err
	}
	if source, err = f.source(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("volume %q is attached, and persistentvolume %q was recreated with another volume handle, %q: the attached volume cannot be attached again",
		handle, VolumeName(f.VolumeAttachment), source.Handle)
}

// OfAnotherVolume reports whether the name of a VolumeAttachment proves that it is for another volume:
// kube-controller-manager makes the name of the volume handle, the driver and the node
// (getAttachmentName in pkg/volume/csi). Other names prove nothing.
func OfAnotherVolume(va *storagev1.VolumeAttachment, volumeHandle string) bool {
	sum, made := strings.CutPrefix(va.Name, "csi-")
	if raw, err := hex.DecodeString(sum); !made || err != nil || len(raw) != sha256.Size {
		return false
	}
	return sum != fmt.Sprintf("%x", sha256.Sum256([]byte(volumeHandle+va.Spec.Attacher+va.Spec.NodeName)))
}

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

// ListedHandle returns the handle by which the driver lists a volume at a node ID. It differs from the
// handle of the PersistentVolume only for in-tree volumes that are migrated to CSI.
func (d Driver) ListedHandle(handle, nodeID string) string {
	if listed, err := d.ListedAs(handle, nodeID); err == nil {
		return listed
	}
	return handle
}

// ListedAs is ListedHandle, or an error if that handle is not known. The handle of an in-tree volume can be
// incomplete: the handle of a GCE PD lacks the project, which the node ID has.
func (d Driver) ListedAs(handle, nodeID string) (string, error) {
	if !d.IsMigrated() {
		return handle, nil
	}
	repaired, err := translator.RepairVolumeHandle(d.Name, handle, nodeID)
	if err != nil {
		return "", fmt.Errorf("repair volume handle %q for node %q: %w", handle, nodeID, err)
	}
	return repaired, nil
}

// HandleKey returns what the handle of a PersistentVolume and the handle by which the driver lists it have in common.
func (d Driver) HandleKey(handle string) string {
	if d.IsMigrated() { // the repair of a handle fills in its project or zone
		return path.Base(handle)
	}
	return handle
}

// IsMigrated reports whether in-tree volumes are migrated to the driver.
func (d Driver) IsMigrated() bool { return translator.IsMigratedCSIDriverByName(d.Name) }
