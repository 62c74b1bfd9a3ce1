package testbed

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Pod is bound to a node and never runs. With kube-controller-manager its
// volumes are attached to the node while it exists.
type Pod struct {
	Name   string // in namespace default
	Node   string
	Claims []string // names of PersistentVolumeClaims, mounted as file systems
}

// Build returns the Kubernetes object.
func (p Pod) Build() *corev1.Pod {
	main := corev1.Container{Name: "main", Image: "none"}
	var volumes []corev1.Volume
	for i, claim := range p.Claims {
		name := fmt.Sprintf("volume-%d", i)
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: p.Name},
		Spec:       corev1.PodSpec{NodeName: p.Node, Containers: []corev1.Container{main}, Volumes: volumes},
	}
}

func (p Pod) String() string { return "Pod default/" + p.Name }

func (p Pod) requests(client kubernetes.Interface) requests {
	return requestsFor(client.CoreV1().Pods(metav1.NamespaceDefault), p.Build(), p.Name)
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

func namespaceOr(namespace string) string { return cmp.Or(namespace, metav1.NamespaceDefault) }
