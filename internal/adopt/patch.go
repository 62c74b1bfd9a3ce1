package adopt

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// templatePatch is a strategic merge patch of a Pod template.
type templatePatch struct {
	Metadata struct {
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata,omitzero"`
	Spec struct {
		Containers     []any           `json:"containers,omitempty"`
		InitContainers []any           `json:"initContainers,omitempty"`
		Volumes        []corev1.Volume `json:"volumes,omitempty"`
	} `json:"spec,omitzero"`
}

// patchOf returns what the drivers of one workload need at a step, on top of the step before.
func patchOf(plans []Plan, step Step) templatePatch {
	var t templatePatch
	for _, p := range plans {
		switch {
		case p.Options.Mode == ModeDropIn:
			p.dropInPatch(&t)
		case step == StepObserve:
			p.proxyPatch(&t)
		default:
			p.changeAttacher(&t, map[string]any{"$patch": "delete"})
		}
	}
	return t
}

// defaultContainer is read by kubectl logs and exec.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// add adds a container of ours. kustomize puts it first, where kubectl would take it for the driver.
func (t *templatePatch) add(c corev1.Container, w *Workload, attachers []Plan) {
	t.Spec.Containers = append(t.Spec.Containers, c)
	if w.Template.Annotations[defaultContainer] != "" {
		return
	}
	for i, c := range w.Template.Spec.Containers {
		attaches := slices.ContainsFunc(attachers, func(p Plan) bool { return p.Container.Name == c.Name })
		if !attaches && (i == 0 || !isSidecar(c)) { // the first, or the driver in place of a csi-attacher
			t.Metadata.Annotations = map[string]string{defaultContainer: c.Name}
			return
		}
	}
}

// changeAttacher adds the change of the csi-attacher container.
func (p Plan) changeAttacher(t *templatePatch, change map[string]any) {
	change["name"] = p.Container.Name
	if p.Init {
		t.Spec.InitContainers = append(t.Spec.InitContainers, change)
	} else {
		t.Spec.Containers = append(t.Spec.Containers, change)
	}
}

// fileMode is a mode in a patch. YAML 1.1 and 1.2 write octal numbers differently, so it stays a decimal number.
var fileMode = regexp.MustCompile(`(defaultMode: )(\d+)\n`)

// workloadPatch returns the strategic merge patch that leads a workload to a step from the step before, for all drivers
// of the workload, in YAML as kustomize takes it.
func workloadPatch(plans []Plan, step Step) ([]byte, error) {
	w := plans[0].Workload
	spec := map[string]any{"template": patchOf(plans, step)}
	if step == StepObserve && plans[0].setsStrategy() {
		spec["strategy"] = map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(0), "maxUnavailable": int64(1)}}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": w.GetAPIVersion(), "kind": w.GetKind(),
		"metadata": map[string]any{"name": w.GetName(), "namespace": w.Namespace},
		"spec":     spec,
	})
	return fileMode.ReplaceAllFunc(text, func(line []byte) []byte {
		mode, _ := strconv.Atoi(string(fileMode.FindSubmatch(line)[2]))
		return fmt.Appendf(nil, "defaultMode: %d # %#o\n", mode, mode)
	}), err
}

// setsStrategy reports whether the update strategy must change: a Pod on the network of its node has ports for which
// two of them have no room there, and a rolling update that begins with a new Pod waits for a free node without end.
func (p Plan) setsStrategy() bool {
	if !p.HostNetwork() || p.Workload.GetKind() != "Deployment" || p.Workload.strategy() == "Recreate" {
		return false
	}
	surge, found, _ := unstructured.NestedFieldNoCopy(p.Workload.Object.Object, "spec", "strategy", "rollingUpdate", "maxSurge")
	return !found || !slices.Contains([]string{"0", "0%"}, fmt.Sprint(surge))
}
