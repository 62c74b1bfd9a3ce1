package adopt

import (
	"bytes"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// written begins each file of Kustomize: only such files are overwritten.
const written = "# Written by csi-attach-hub adopt.\n"

const kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"

// Kustomize returns a folder of kustomizations, each of which `kubectl apply -k` takes:
//
//	original     the workloads as they were read: the way back
//	observe      with the proxy beside csi-attacher
//	active       observe, without csi-attacher
//	hub          a component for the overlay of the hub
//	drivers.yaml the entries of the drivers
func Kustomize(plans []Plan) (Files, error) {
	files := Files{"drivers.yaml": append([]byte(written), DriversFile(plans)...)}
	var original, objects, hub bytes.Buffer
	patches := map[Step][]string{}
	for i, group := range byWorkload(plans) {
		w := group[0].Workload
		manifest, err := yaml.Marshal(w.Object.Object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Object, err)
		}
		if i > 0 {
			original.WriteString("---\n")
		}
		original.Write(manifest)
		for _, step := range group[0].Options.Mode.Steps() {
			patch, err := workloadPatch(group, step)
			if err != nil {
				return nil, err
			}
			name := fmt.Sprintf("%s-%s.yaml", strings.ToLower(w.GetKind()), w.GetName())
			files[string(step)+"/"+name] = append([]byte(written), patch...)
			patches[step] = append(patches[step], name)
		}
		for _, p := range group {
			for _, part := range []struct {
				b    *bytes.Buffer
				text func() ([]byte, error)
			}{{&objects, p.DriverObjects}, {&hub, p.HubObjects}} {
				text, err := part.text()
				if err != nil {
					return nil, err
				}
				if part.b.Len() > 0 {
					part.b.WriteString("---\n")
				}
				part.b.Write(text)
			}
		}
	}
	files["original/manifest.yaml"] = append([]byte(written), original.Bytes()...)
	files["observe/objects.yaml"] = append([]byte(written), objects.Bytes()...)
	files["hub/networkpolicy.yaml"] = append([]byte(written), hub.Bytes()...)
	files["original/kustomization.yaml"] = []byte(written + "# The workloads as they were read. You can name the folder of your own kustomization instead.\n" + kustomization + "resources:\n  - manifest.yaml\n")
	files["observe/kustomization.yaml"] = []byte(written + "# The proxy beside csi-attacher, which goes on working.\n" + kustomization + "resources:\n  - ../original\n  - objects.yaml\n" + list("patches", patches[StepObserve]))
	files["active/kustomization.yaml"] = []byte(written + "# Without csi-attacher.\n" + kustomization + "resources:\n  - ../observe\n" + list("patches", patches[StepActive]))
	files["hub/kustomization.yaml"] = []byte(written + "# For the overlay of the hub: name this folder under components.\napiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources:\n  - networkpolicy.yaml\n")
	return files, nil
}

// list returns a list of patches, each of a file.
func list(key string, paths []string) string {
	var b strings.Builder
	b.WriteString(key + ":\n")
	for _, path := range paths {
		fmt.Fprintf(&b, "  - path: %s\n", path)
	}
	return b.String()
}
