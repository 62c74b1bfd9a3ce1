package adopt

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"

// OriginalKustomization is the file of Kustomize that users may replace by one of their own, which names their own base.
const OriginalKustomization = "original/kustomization.yaml"

// stepComments say what the kustomization of a step adds to the one before.
var stepComments = map[Mode]map[Step]string{
	ModeProxy:      {StepObserve: "The proxy beside csi-attacher, which goes on working.", StepActive: "Without csi-attacher: the hub works."},
	ModeDropIn:     {StepActive: "With the image of the hub in place of that of csi-attacher."},
	ModeSidecarHub: {StepObserve: "The hub beside csi-attacher, which goes on working.", StepActive: "Without csi-attacher: the hub works."},
}

// Kustomize returns a folder of kustomizations, each of which `kubectl apply -k` takes:
//
//	original     the workloads as they were read: the way back
//	observe      with the proxy beside csi-attacher
//	active       observe, without csi-attacher
//	hub          a component for the overlay of the hub
//	drivers.yaml the entries of the drivers
//	README.md    the steps
//
// dir is the path of the folder, for the commands in README.md. The plans must have passed Check.
func Kustomize(plans []Plan, dir string) (Files, error) {
	files := Files{}
	var original []string
	for _, group := range byWorkload(plans) {
		manifest, err := group[0].Workload.manifest()
		if err != nil {
			return nil, err
		}
		original = append(original, manifest)
	}
	files.add("original/manifest.yaml", strings.Join(original, "---\n"))
	files.add(OriginalKustomization, "# The workloads as they were read. To use your own base, name it here, and delete the first line:\n",
		"# then adopt leaves this file alone.\n", kustomization, list("resources", "manifest.yaml"))
	objects, err := joined(plans, Plan.DriverObjects)
	if err != nil {
		return nil, err
	}
	before := "../original"
	for i, step := range plans[0].Options.Mode.Steps() {
		resources := []string{before}
		if i == 0 && objects != "" {
			files.add(string(step)+"/objects.yaml", objects)
			resources = append(resources, "objects.yaml")
		}
		var patches []string
		for _, group := range byWorkload(plans) {
			patch, err := workloadPatch(group, step)
			if err != nil {
				return nil, err
			}
			name := group[0].Workload.fileName()
			files.add(string(step)+"/"+name, string(patch))
			patches = append(patches, "path: "+name+"\n    target: "+target(group[0].Workload, plans))
		}
		files.add(string(step)+"/kustomization.yaml", "# ", stepComments[plans[0].Options.Mode][step], "\n",
			kustomization, list("resources", resources...), list("patches", patches...))
		before = "../" + string(step)
	}
	if err := files.addHub(plans); err != nil {
		return nil, err
	}
	files["README.md"] = Readme(plans, dir)
	return files, nil
}

// target selects a workload for its patch. The namespace is in it only where two workloads have one name: a base of the
// user may set the namespace later, or name none.
func target(w *Workload, plans []Plan) string {
	text := fmt.Sprintf("{kind: %s, name: %s", w.GetKind(), strconv.Quote(regexp.QuoteMeta(w.GetName())))
	if slices.ContainsFunc(plans, func(p Plan) bool {
		return p.Workload.GetKind() == w.GetKind() && p.Workload.GetName() == w.GetName() && p.Workload.Namespace != w.Namespace
	}) {
		text += fmt.Sprintf(", namespace: %q", w.Namespace)
	}
	return text + "}"
}

// manifest returns the workload as it was read. It names its namespace, so that the way back leads there too.
func (w *Workload) manifest() (string, error) {
	o := w.DeepCopy()
	o.SetNamespace(w.Namespace)
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return "", fmt.Errorf("%s: %w", w.Object, err)
	}
	return string(text), nil
}

// driverNames returns the names of the drivers that can be adopted.
func driverNames(plans []Plan) []string {
	var names []string
	for _, p := range plans {
		if p.Adoptable() && !slices.Contains(names, p.Driver) {
			names = append(names, p.Driver)
		}
	}
	return names
}
