package adopt

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// workloadKinds are the kinds that a driver's controller can have. Their Pod template is spec.template.
var workloadKinds = []string{"Deployment", "StatefulSet", "DaemonSet"}

// Workload is a Deployment, StatefulSet or DaemonSet of the input.
type Workload struct {
	Object
	Namespace string // metadata.namespace, or the namespace that the user names for objects without one
	Replicas  int64  // 1 if not set; 0 for a DaemonSet
	Template  corev1.PodTemplateSpec
}

// newWorkload reads the Pod template of an object.
func newWorkload(o Object, namespace string) (*Workload, error) {
	w := &Workload{Object: o, Namespace: o.GetNamespace(), Replicas: 1}
	if w.Namespace == "" {
		w.Namespace = namespace
	}
	template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err == nil && !found {
		err = fmt.Errorf("spec.template is missing")
	}
	if err == nil {
		err = decode(template, &w.Template)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: spec.template: %w", o, err)
	}
	if o.GetKind() == "DaemonSet" {
		w.Replicas = 0
	} else if replicas, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas"); found {
		switch n := replicas.(type) {
		case int64:
			w.Replicas = n
		case float64:
			w.Replicas = int64(n)
		default:
			return nil, fmt.Errorf("%s: spec.replicas: %v is not a number", o, replicas)
		}
	}
	return w, nil
}

// decode converts the content of an object into a type.
func decode(content map[string]any, into any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// containers returns all containers of the Pod, also those of initContainers: a sidecar can be one with
// restartPolicy Always.
func (w *Workload) containers() []corev1.Container {
	return append(append([]corev1.Container(nil), w.Template.Spec.Containers...), w.Template.Spec.InitContainers...)
}
