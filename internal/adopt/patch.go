package adopt

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
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
	switch mode := plans[0].Options.Mode; {
	case mode == ModeSidecarHub && step == StepObserve:
		hubPatch(plans, &t)
	case mode == ModeSidecarHub:
		hubActivePatch(plans, &t)
	default:
		for _, p := range plans {
			switch {
			case mode == ModeDropIn:
				p.dropInPatch(&t)
			case step == StepObserve:
				p.proxyPatch(&t)
			default:
				p.removeAttacher(&t)
			}
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

// removeAttacher deletes the csi-attacher container.
func (p Plan) removeAttacher(t *templatePatch) {
	p.changeAttacher(t, map[string]any{"$patch": "delete"})
}

// fileMode is a mode in a patch. YAML 1.1 and 1.2 write octal numbers differently, so it stays a decimal number.
var fileMode = regexp.MustCompile(`(defaultMode: )(\d+)\n`)

// workloadPatch returns the strategic merge patch that leads a workload to a step from the step before, for all drivers
// of the workload, in YAML as kustomize takes it.
func workloadPatch(plans []Plan, step Step) ([]byte, error) {
	w := plans[0].Workload
	spec := map[string]any{"template": patchOf(plans, step)}
	if step == StepObserve && plans[0].setsStrategy() {
		spec["strategy"] = withoutSurge()
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

// Patched returns the content of the workload of the plans after a step and the steps before. It does not change
// the workload.
func Patched(plans []Plan, last Step) (map[string]any, error) {
	w := plans[0].Workload
	object := w.DeepCopy()
	spec, _ := object.Object["spec"].(map[string]any)
	template, err := json.Marshal(spec["template"])
	for _, step := range plans[0].Options.Mode.Steps() {
		if err != nil {
			break
		}
		var patch []byte
		if patch, err = json.Marshal(patchOf(plans, step)); err != nil {
			break
		}
		template, err = strategicpatch.StrategicMergePatch(template, patch, corev1.PodTemplateSpec{})
		if step == last {
			break
		}
	}
	var content map[string]any
	if err == nil {
		err = json.Unmarshal(template, &content)
	}
	keepOrder(content, w.Template.Spec.Containers)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Object, err)
	}
	spec["template"] = content
	if plans[0].setsStrategy() {
		spec["strategy"] = withoutSurge()
	}
	return object.Object, nil
}

// keepOrder puts new containers last: other patches may know containers by their index.
func keepOrder(template map[string]any, before []corev1.Container) {
	containers, _, _ := unstructured.NestedFieldNoCopy(template, "spec", "containers")
	list, _ := containers.([]any)
	place := func(c any) int {
		m, _ := c.(map[string]any)
		if i := slices.IndexFunc(before, func(b corev1.Container) bool { return b.Name == m["name"] }); i >= 0 {
			return i
		}
		return len(before)
	}
	slices.SortStableFunc(list, func(x, y any) int { return place(x) - place(y) })
}
