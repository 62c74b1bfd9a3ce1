package adopt

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// removed is a container that the patch deletes.
func removed(name string) any { return map[string]string{"$patch": "delete", "name": name} }

// patch adds what one driver needs at a step, on top of the step before, to the patch of its Pod template.
func (p Plan) patch(t *templatePatch, step Step) {
	switch {
	case p.Options.Mode == ModeProxy && step == StepObserve:
		p.proxyPatch(t)
	case p.Options.Mode == ModeProxy && step == StepActive:
		p.removeAttacher(t)
	}
}

// removeAttacher deletes the csi-attacher container.
func (p Plan) removeAttacher(t *templatePatch) {
	if p.Init {
		t.Spec.InitContainers = append(t.Spec.InitContainers, removed(p.Container.Name))
	} else {
		t.Spec.Containers = append(t.Spec.Containers, removed(p.Container.Name))
	}
}

// workloadPatch returns the strategic merge patch that leads a workload to a step from the step before, for all drivers
// of the workload, in YAML as kustomize takes it.
func workloadPatch(plans []Plan, step Step) ([]byte, error) {
	w := plans[0].Workload
	return yaml.Marshal(map[string]any{
		"apiVersion": w.GetAPIVersion(), "kind": w.GetKind(),
		"metadata": map[string]any{"name": w.GetName(), "namespace": w.Namespace},
		"spec":     map[string]any{"template": patchOf(plans, step)},
	})
}

func patchOf(plans []Plan, step Step) templatePatch {
	var t templatePatch
	for _, p := range plans {
		p.patch(&t, step)
	}
	return t
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
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Object, err)
	}
	spec["template"] = content
	return object.Object, nil
}
