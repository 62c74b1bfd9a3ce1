package attach

import storagev1 "k8s.io/api/storage/v1"

// LogKeys returns the keys and values that each log line about a VolumeAttachment has, beside the driver. A
// value that is not known, or that an inline volume does not have, is "".
func LogKeys(va *storagev1.VolumeAttachment, volumeHandle string) []any {
	return []any{"volumeAttachment", va.Name, "persistentVolume", VolumeName(va), "node", va.Spec.NodeName, "volumeHandle", volumeHandle}
}
