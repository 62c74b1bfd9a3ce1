package adopt

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Workload is an object of the input that makes Pods: a Deployment, StatefulSet or DaemonSet.
type Workload struct {
	Object
	Namespace string // metadata.namespace, or the namespace that the user names for objects without one
	Replicas  int64  // 1 if not set; 0 for a DaemonSet
	Template  corev1.PodTemplateSpec
	spec      workloadSpec
}

type workloadSpec struct {
	Replicas       *int64                  `json:"replicas"`
	Selector       *metav1.LabelSelector   `json:"selector"`
	Strategy       updateStrategy          `json:"strategy"`       // of a Deployment
	UpdateStrategy updateStrategy          `json:"updateStrategy"` // of the others
	Template       *corev1.PodTemplateSpec `json:"template"`
}

type updateStrategy struct {
	Type          string `json:"type"`
	RollingUpdate struct {
		MaxSurge *intstr.IntOrString `json:"maxSurge"`
	} `json:"rollingUpdate"`
}

// isWorkload reports whether an object is of a kind that can be adopted.
func isWorkload(o Object) bool {
	return slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, o.GetKind()) && o.GetAPIVersion() == "apps/v1"
}

// newWorkload reads the Pod template of an object. It returns an error for an object without one.
func newWorkload(o Object, namespace string) (*Workload, error) {
	w := &Workload{Object: o, Namespace: o.GetNamespace(), Replicas: 1}
	if w.Namespace == "" {
		w.Namespace = namespace
	}
	var content struct {
		Spec *workloadSpec `json:"spec"`
	}
	content.Spec = &w.spec
	err := decode(o, &content)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // without the value: it can be that of an env
		err = fmt.Errorf("%s: want %s, it is a %s", wrong.Field, wrong.Type, strings.Fields(wrong.Value + " ?")[0])
	} else if err == nil && w.spec.Template == nil {
		err = errors.New("spec.template is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	w.Template = *w.spec.Template
	if o.GetKind() == "DaemonSet" {
		w.Replicas = 0
	} else if w.spec.Replicas != nil {
		w.Replicas = *w.spec.Replicas
	}
	return w, nil
}

// decode converts an object into a type.
func decode(o Object, into any) error {
	data, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// containers returns all containers of the Pod, also those of initContainers: a sidecar can be one with
// restartPolicy Always.
func (w *Workload) containers() []corev1.Container {
	return slices.Concat(w.Template.Spec.Containers, w.Template.Spec.InitContainers)
}

// running returns the containers that run beside each other.
func (w *Workload) running() []corev1.Container {
	return append(slices.Clone(w.Template.Spec.Containers), slices.DeleteFunc(slices.Clone(w.Template.Spec.InitContainers), func(c corev1.Container) bool {
		return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	})...)
}

// pathOf returns the path of a container by its place in containers().
func (w *Workload) pathOf(i int) string {
	if n := len(w.Template.Spec.Containers); i >= n {
		return fmt.Sprintf("spec.template.spec.initContainers[%d]", i-n)
	}
	return fmt.Sprintf("spec.template.spec.containers[%d]", i)
}

// Reference names the workload for kubectl.
func (w *Workload) Reference() string { return strings.ToLower(w.GetKind()) + "/" + w.GetName() }

// PodSelector returns the labels of the workload's Pods, for kubectl in a shell.
func (w *Workload) PodSelector() string {
	s := w.spec.Selector
	if s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		s = &metav1.LabelSelector{MatchLabels: w.Template.Labels}
	}
	return quoted(metav1.FormatLabelSelector(s))
}

// OnDelete reports whether Pods stay as they are until somebody deletes them.
func (w *Workload) OnDelete() bool { return w.spec.UpdateStrategy.Type == "OnDelete" }

// SetsStrategy reports whether the update strategy must change: a Pod on the network of its node has ports for which
// two of them have no room there, and a rolling update that begins with a new Pod waits for a free node without end.
func (w *Workload) SetsStrategy() bool {
	surge := w.spec.Strategy.RollingUpdate.MaxSurge
	starts := surge == nil || surge.String() != "0" && surge.String() != "0%"
	return w.Template.Spec.HostNetwork && w.GetKind() == "Deployment" && w.spec.Strategy.Type != "Recreate" && starts
}

var variable = regexp.MustCompile(`\$\$|\$\([A-Za-z_.-][A-Za-z0-9_.-]*\)`)

// environment returns the variables of a container, as far as the manifest says their values.
func (w *Workload) environment(c corev1.Container) map[string]string {
	values := map[string]string{}
	for _, e := range c.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			values[e.Name] = expand(e.Value, values)
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			values[e.Name] = w.Namespace
		default:
			delete(values, e.Name)
		}
	}
	return values
}

// expand replaces the variables of a text as the kubelet does. A variable whose value is not known stays as it is.
func expand(text string, values map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(reference string) string {
		if reference == "$$" {
			return "$"
		}
		if value, ok := values[reference[2:len(reference)-1]]; ok {
			return value
		}
		return reference
	})
}

// wordsOf returns the command and the arguments of a container with the values of its variables.
func (w *Workload) wordsOf(c corev1.Container) (line []string) {
	values := w.environment(c)
	for _, word := range slices.Concat(c.Command, c.Args) {
		line = append(line, expand(word, values))
	}
	return line
}
