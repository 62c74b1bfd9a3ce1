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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// workloadKinds are the kinds that a driver's controller can have. Their Pod template is spec.template.
var workloadKinds = []string{"Deployment", "StatefulSet", "DaemonSet"}

// Workload is an object of the input that makes Pods.
type Workload struct {
	Object
	Namespace string // metadata.namespace, or the namespace that the user names for objects without one
	Replicas  int64  // 1 if not set; 0 for a DaemonSet
	Template  corev1.PodTemplateSpec
	path      string // of the Pod's spec in the object
}

// isWorkload reports whether an object is of a kind that can be adopted.
func isWorkload(o Object) bool {
	return slices.Contains(workloadKinds, o.GetKind()) && strings.HasPrefix(o.GetAPIVersion(), "apps/")
}

// newWorkload reads the Pod template of an object. It returns an error for an object without one.
func newWorkload(o Object, namespace string) (*Workload, error) {
	w := &Workload{Object: o, Namespace: cmp.Or(o.GetNamespace(), namespace), Replicas: 1}
	var err error
	if w.path, err = decodeTemplate(o, &w.Template); err != nil || w.path == "" {
		if err == nil {
			err = errors.New("spec.template is missing")
		}
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	if o.GetKind() == "DaemonSet" {
		w.Replicas = 0
	} else if replicas, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas"); found && replicas != nil {
		switch n := replicas.(type) {
		case int64:
			w.Replicas = n
		case float64:
			w.Replicas = int64(n)
		default:
			return nil, fmt.Errorf("%s: spec.replicas: want a number", o)
		}
	}
	return w, nil
}

// decodeTemplate reads the Pod template of an object, and returns the path of the Pod's spec. It returns "" for an
// object without one.
func decodeTemplate(o Object, into *corev1.PodTemplateSpec) (path string, err error) {
	var content any
	switch o.GetKind() {
	case "Pod":
		path, content = "spec", map[string]any{"metadata": o.Object["metadata"], "spec": o.Object["spec"]}
	default:
		path = "spec.template.spec"
		content, _, _ = unstructured.NestedFieldNoCopy(o.Object, "spec", "template")
	}
	if content == nil {
		return "", nil
	}
	data, err := json.Marshal(content)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // without the value: it can be that of an env
		err = fmt.Errorf("%s: want %s, it is a %s", strings.TrimSuffix(path, "spec")+wrong.Field, wrong.Type, strings.Fields(wrong.Value + " ?")[0])
	} else if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return path, err
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
		return fmt.Sprintf("%s.initContainers[%d]", w.path, i-n)
	}
	return fmt.Sprintf("%s.containers[%d]", w.path, i)
}

// controller returns the owner that makes the object again when others change it, nil if there is none.
func (o Object) controller() *metav1.OwnerReference { return metav1.GetControllerOf(&o.Unstructured) }
