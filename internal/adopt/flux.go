package adopt

import "sigs.k8s.io/yaml"

// Flux returns a folder for Flux, which runs no post-renderer but applies patches:
//
//	observe.yaml, active.yaml the patches of a step, for HelmRelease.spec.postRenderers
//	objects      the objects beside the workload, for a Kustomization
//	hub          a component for the overlay of the hub
//	drivers.yaml the entries of the drivers
//
// The plans must have passed Check.
func Flux(plans []Plan) (Files, error) {
	files := Files{}
	var patches []any
	for _, step := range plans[0].Options.Mode.Steps() {
		for _, group := range byWorkload(plans) {
			w := group[0].Workload
			patch, err := workloadPatch(group, step)
			if err != nil {
				return nil, err
			}
			target := map[string]any{"kind": w.GetKind(), "name": w.GetName()}
			if w.GetNamespace() != "" {
				target["namespace"] = w.GetNamespace()
			}
			patches = append(patches, map[string]any{"target": target, "patch": string(patch)})
		}
		release, err := yaml.Marshal(map[string]any{"spec": map[string]any{
			"postRenderers": []any{map[string]any{"kustomize": map[string]any{"patches": patches}}}}})
		if err != nil {
			return nil, err
		}
		files.add(string(step)+".yaml", "# Add it to the HelmRelease of the driver. ", stepComments[plans[0].Options.Mode][step], "\n", string(release))
	}
	objects, err := joined(plans, Plan.DriverObjects)
	if err != nil {
		return nil, err
	}
	if objects != "" {
		files.add("objects/objects.yaml", objects)
		files.add("objects/kustomization.yaml", "# Apply it before the HelmRelease has the patches: a Flux Kustomization with this folder as path.\n",
			kustomization, list("resources", "objects.yaml"))
	}
	return files, files.addHub(plans)
}
