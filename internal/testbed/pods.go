package testbed

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Pod is bound to a node and never runs. With kube-controller-manager its
// volumes are attached to the node while it exists.
type Pod struct {
	Namespace string // empty: default
	Name      string
	Node      string
	Claims    []string // PVCs, mounted as file systems
	Devices   []string // PVCs, used as block devices
}

// Build returns the Kubernetes object.
func (p Pod) Build() *corev1.Pod {
	main := corev1.Container{Name: "main", Image: "none"}
	var volumes []corev1.Volume
	add := func(claim string) string {
		name := fmt.Sprintf("volume-%d", len(volumes))
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		return name
	}
	for _, claim := range p.Claims {
		name := add(claim)
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	for _, claim := range p.Devices {
		name := add(claim)
		main.VolumeDevices = append(main.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: "/dev/" + name})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOr(p.Namespace), Name: p.Name},
		Spec:       corev1.PodSpec{NodeName: p.Node, Containers: []corev1.Container{main}, Volumes: volumes},
	}
}

func (p Pod) String() string { return "Pod " + namespaceOr(p.Namespace) + "/" + p.Name }

func (p Pod) requests(client kubernetes.Interface) requests {
	return requestsFor(client.CoreV1().Pods(namespaceOr(p.Namespace)), p.Build(), p.Name)
}

// Secret has the credentials that a PersistentVolume refers to.
type Secret struct {
	Namespace string // empty: default
	Name      string
	Data      map[string]string
}

// Build returns the Kubernetes object.
func (s Secret) Build() *corev1.Secret {
	data := map[string][]byte{}
	for key, value := range s.Data {
		data[key] = []byte(value)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOr(s.Namespace), Name: s.Name}, Data: data}
}

func (s Secret) String() string { return "Secret " + namespaceOr(s.Namespace) + "/" + s.Name }

func (s Secret) requests(client kubernetes.Interface) requests {
	return requestsFor(client.CoreV1().Secrets(namespaceOr(s.Namespace)), s.Build(), s.Name)
}
