package testbed

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// volumeSize means nothing: nothing is provisioned.
var volumeSize = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}

// PersistentVolume is a CSI volume that exists already.
type PersistentVolume struct {
	Name        string
	Driver      string
	Handle      string                              // empty: the name
	AccessModes []corev1.PersistentVolumeAccessMode // empty: ReadWriteOnce
	Block       bool                                // a block device instead of a file system
	FSType      string
	ReadOnly    bool
	MountFlags  []string
	Attributes  map[string]string // volume context
	// Secret for ControllerPublish, nil for none.
	Secret *corev1.SecretReference
	// Claim is the PersistentVolumeClaim, in namespace default, to which the volume is
	// bound beforehand; empty: none.
	Claim string
}

// Inline returns the spec for a VolumeAttachment without a PersistentVolume.
func (v PersistentVolume) Inline() *corev1.PersistentVolumeSpec {
	spec := v.Spec()
	// The API server forbids these there.
	spec.Capacity, spec.PersistentVolumeReclaimPolicy, spec.ClaimRef = nil, "", nil
	return &spec
}

// Spec returns the volume's spec.
func (v PersistentVolume) Spec() corev1.PersistentVolumeSpec {
	spec := corev1.PersistentVolumeSpec{
		Capacity:                      volumeSize,
		AccessModes:                   accessModes(v.AccessModes),
		VolumeMode:                    volumeMode(v.Block),
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		MountOptions:                  v.MountFlags,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver:                     v.Driver,
			VolumeHandle:               cmp.Or(v.Handle, v.Name),
			FSType:                     v.FSType,
			ReadOnly:                   v.ReadOnly,
			VolumeAttributes:           v.Attributes,
			ControllerPublishSecretRef: v.Secret,
		}},
	}
	if v.Claim != "" {
		spec.ClaimRef = &corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "PersistentVolumeClaim",
			Namespace:  metav1.NamespaceDefault,
			Name:       v.Claim,
		}
	}
	return spec
}

// Build returns the Kubernetes object.
func (v PersistentVolume) Build() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name}, Spec: v.Spec()}
}

func (v PersistentVolume) String() string { return "PersistentVolume " + v.Name }

func (v PersistentVolume) requests(client kubernetes.Interface) requests {
	return requestsFor(client.CoreV1().PersistentVolumes(), v.Build(), v.Name)
}

// PersistentVolumeClaim is a claim of one volume. With kube-controller-manager
// it becomes Bound when the PersistentVolume names it too.
type PersistentVolumeClaim struct {
	Name             string // in namespace default
	PersistentVolume string
}

// Build returns the Kubernetes object.
func (c PersistentVolumeClaim) Build() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: c.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      accessModes(nil),
			VolumeName:       c.PersistentVolume,
			StorageClassName: new(""),
			Resources:        corev1.VolumeResourceRequirements{Requests: volumeSize},
		},
	}
}

func (c PersistentVolumeClaim) String() string { return "PersistentVolumeClaim default/" + c.Name }

func (c PersistentVolumeClaim) requests(client kubernetes.Interface) requests {
	return requestsFor(client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault), c.Build(), c.Name)
}

// VolumeAttachment asks an attacher to attach a volume to a node. The
// attach-detach controller makes them for Pods; without it tests do.
type VolumeAttachment struct {
	Name             string
	Driver           string // spec.attacher
	Node             string
	PersistentVolume string                       // name; or
	Inline           *corev1.PersistentVolumeSpec // of a volume without a PersistentVolume
}

// Build returns the Kubernetes object.
func (a VolumeAttachment) Build() *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: a.Name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: a.Driver,
			NodeName: a.Node,
			Source:   storagev1.VolumeAttachmentSource{InlineVolumeSpec: a.Inline},
		},
	}
	if a.PersistentVolume != "" {
		va.Spec.Source.PersistentVolumeName = &a.PersistentVolume
	}
	return va
}

func (a VolumeAttachment) String() string { return "VolumeAttachment " + a.Name }

func (a VolumeAttachment) requests(client kubernetes.Interface) requests {
	return requestsFor(client.StorageV1().VolumeAttachments(), a.Build(), a.Name)
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) []corev1.PersistentVolumeAccessMode {
	if len(modes) == 0 {
		return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return modes
}

func volumeMode(block bool) *corev1.PersistentVolumeMode {
	mode := corev1.PersistentVolumeFilesystem
	if block {
		mode = corev1.PersistentVolumeBlock
	}
	return &mode
}
