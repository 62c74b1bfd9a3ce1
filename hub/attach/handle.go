package attach

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// attachedVolume returns the handle of the volume that a VolumeAttachment has, or may have,
// attached: the noted handle, or else the handle of its inline specification or PersistentVolume.
// It also returns the specification of the volume, nil if the PersistentVolume is gone or has
// another handle: it describes another volume then. The error says why the handle is not known.
func attachedVolume(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) (string, *corev1.PersistentVolumeSpec, error) {
	noted := NotedTarget(va).VolumeHandle
	spec, err := volumeSpec(va, pv)
	switch {
	case noted == "" && err != nil:
		return "", nil, err
	case noted == "":
		if pv != nil && isRecreated(va, pv, spec.CSI.VolumeHandle) {
			return "", nil, errRecreated(va, pv, spec.CSI.VolumeHandle)
		}
		return spec.CSI.VolumeHandle, spec, nil
	case err != nil || spec.CSI.VolumeHandle != noted:
		return noted, nil, nil
	}
	return noted, spec, nil
}

// attachedSpec returns the specification of the volume that an attached VolumeAttachment has. The
// error says why it is not known.
func attachedSpec(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) (*corev1.PersistentVolumeSpec, error) {
	handle, spec, err := attachedVolume(va, pv)
	if err != nil || spec != nil {
		return spec, err
	}
	if spec, err = volumeSpec(va, pv); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("volume %q is attached, and persistentvolume %q %w with another volume handle, %q: the attached volume cannot be attached again",
		handle, VolumeName(va), errVolumeRecreated, spec.CSI.VolumeHandle)
}

// isRecreated reports whether the PersistentVolume of a VolumeAttachment that notes no handle has
// the handle of another volume: the PersistentVolume is younger than the VolumeAttachment, and the
// name of the VolumeAttachment was not made of that handle.
func isRecreated(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume, handle string) bool {
	return va.CreationTimestamp.Before(&pv.CreationTimestamp) && ofAnotherVolume(va, handle)
}

func errRecreated(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume, handle string) error {
	return fmt.Errorf("the handle of the attached volume is not known: persistentvolume %q %w with another one, %q, after the VolumeAttachment was created, and the VolumeAttachment notes none: "+
		"write the handle of the attached volume into its annotation %s, or make sure that the volume is detached from node %q and remove the finalizer %s",
		pv.Name, errVolumeRecreated, handle, AnnotationVolumeHandle, va.Spec.NodeName, Finalizer(va.Spec.Attacher))
}

// ofAnotherVolume reports whether the name of a VolumeAttachment proves that it is for another volume:
// kube-controller-manager makes the name of the volume handle, the driver and the node
// (getAttachmentName in pkg/volume/csi). Other names prove nothing.
func ofAnotherVolume(va *storagev1.VolumeAttachment, volumeHandle string) bool {
	sum, made := strings.CutPrefix(va.Name, "csi-")
	if raw, err := hex.DecodeString(sum); !made || err != nil || len(raw) != sha256.Size {
		return false
	}
	return sum != fmt.Sprintf("%x", sha256.Sum256([]byte(volumeHandle+va.Spec.Attacher+va.Spec.NodeName)))
}
