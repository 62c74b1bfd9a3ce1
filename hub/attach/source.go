package attach

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// translator translates in-tree volumes into CSI volumes. It has no state.
var translator = csitranslation.New()

func migratable(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI == nil && translator.IsPVMigratable(pv)
}

// volumeSpec returns the specification of a VolumeAttachment's volume, with a CSI source: the
// specification of its PersistentVolume, translated if it is an in-tree volume, or its inline
// specification, which kube-controller-manager has translated. pv is nil if there is none.
func volumeSpec(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) (*corev1.PersistentVolumeSpec, error) {
	source := va.Spec.Source
	switch {
	case source.PersistentVolumeName != nil && source.InlineVolumeSpec != nil:
		return nil, errors.New("both inlineVolumeSpec and persistentVolumeName are given in the VolumeAttachment's source")
	case source.InlineVolumeSpec != nil:
		if source.InlineVolumeSpec.CSI == nil {
			return nil, errors.New("the VolumeAttachment's inlineVolumeSpec has no CSI source")
		}
		return source.InlineVolumeSpec, nil
	case source.PersistentVolumeName == nil:
		return nil, errors.New("neither inlineVolumeSpec nor persistentVolumeName is given in the VolumeAttachment's source")
	case pv == nil:
		return nil, fmt.Errorf("persistentvolume %q %w", *source.PersistentVolumeName, errVolumeMissing)
	}
	return specOf(pv)
}

// specOf is volumeSpec for a PersistentVolume alone.
func specOf(pv *corev1.PersistentVolume) (*corev1.PersistentVolumeSpec, error) {
	switch {
	case pv.Spec.CSI != nil:
		return &pv.Spec, nil
	case !migratable(pv):
		return nil, fmt.Errorf("persistentvolume %q %w", pv.Name, errVolumeNotCSI)
	}
	translated, err := translator.TranslateInTreePVToCSI(klog.Background(), pv)
	if err != nil {
		return nil, fmt.Errorf("translate persistentvolume %q to CSI: %w", pv.Name, err)
	}
	return &translated.Spec, nil
}

// HandleOf returns the volume handle of a VolumeAttachment: the noted handle, or else the handle of
// its volume. It returns "" if neither is known.
func HandleOf(f Inputs) string {
	if noted := NotedTarget(f.VolumeAttachment).VolumeHandle; noted != "" {
		return noted
	}
	if spec, err := volumeSpec(f.VolumeAttachment, f.PersistentVolume); err == nil {
		return spec.CSI.VolumeHandle
	}
	return ""
}

// VolumeHandle returns the handle of a PersistentVolume, "" if it has none.
func VolumeHandle(pv *corev1.PersistentVolume) string {
	if spec, err := specOf(pv); err == nil {
		return spec.CSI.VolumeHandle
	}
	return ""
}
