package adopt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workloadKinds are the kinds that a driver's controller can have. Their Pod template is spec.template.
var workloadKinds = []string{"Deployment", "StatefulSet", "DaemonSet"}

// Workload is an object of the input that makes Pods.
type Workload struct {
	Object
	Namespace string // metadata.namespace, or the namespace that the user names for objects without one
	Replicas  int64  // 1 if not set; 0 for a DaemonSet
	Template  corev1.PodTemplateSpec
}

// isWorkload reports whether an object is of a kind that can be adopted.
func isWorkload(o Object) bool {
	return slices.Contains(workloadKinds, o.GetKind()) && strings.HasPrefix(o.GetAPIVersion(), "apps/")
}

// newWorkload reads the Pod template of an object. It returns an error for an object without one.
func newWorkload(o Object, namespace string) (*Workload, error) {
	var content struct {
		Spec struct {
			Replicas *int64                  `json:"replicas"`
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	data, err := json.Marshal(o.Object)
	if err == nil {
		err = json.Unmarshal(data, &content)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // without the value: it can be that of an env
		err = fmt.Errorf("%s: want %s, it is a %s", wrong.Field, wrong.Type, strings.Fields(wrong.Value + " ?")[0])
	} else if err == nil && content.Spec.Template == nil {
		err = errors.New("spec.template is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	w := &Workload{Object: o, Namespace: cmp.Or(o.GetNamespace(), namespace), Replicas: 1, Template: *content.Spec.Template}
	if o.GetKind() == "DaemonSet" {
		w.Replicas = 0
	} else if content.Spec.Replicas != nil {
		w.Replicas = *content.Spec.Replicas
	}
	return w, nil
}

// containers returns all containers of the Pod, also those of initContainers: a sidecar can be one with
// restartPolicy Always.
func (w *Workload) containers() []corev1.Container {
	return append(append([]corev1.Container(nil), w.Template.Spec.Containers...), w.Template.Spec.InitContainers...)
}

// running returns the containers that run beside each other.
func running(pod corev1.PodSpec) []corev1.Container {
	all := append([]corev1.Container(nil), pod.Containers...)
	for _, c := range pod.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			all = append(all, c)
		}
	}
	return all
}

// pathOf returns the path of a container by its place in containers().
func (w *Workload) pathOf(i int) string {
	if n := len(w.Template.Spec.Containers); i >= n {
		return fmt.Sprintf("spec.template.spec.initContainers[%d]", i-n)
	}
	return fmt.Sprintf("spec.template.spec.containers[%d]", i)
}

// controller returns the owner that makes the object again when others change it, nil if there is none.
func (o Object) controller() *metav1.OwnerReference { return metav1.GetControllerOf(&o.Unstructured) }
