package adopt

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// Files are the content of files by their paths below a folder.
type Files map[string][]byte

// The first line of each file of an output: only such files are overwritten.
const (
	written         = "# Written by csi-attach-hub adopt.\n"
	writtenMarkdown = "<!-- Written by csi-attach-hub adopt. -->\n"
)

// IsWritten reports whether a file begins as the files of an output do.
func IsWritten(content []byte) bool {
	return bytes.HasPrefix(content, []byte(written)) || bytes.HasPrefix(content, []byte(writtenMarkdown))
}

// CheckReplaced returns an error if the drivers.yaml of an earlier output has drivers that the plans do not have: their
// files would be removed. A drivers.yaml that adopt has not written is none of its outputs.
func CheckReplaced(content []byte, plans []Plan) error {
	if !IsWritten(content) {
		return nil
	}
	var file struct{ Drivers []struct{ Name string } }
	if err := yaml.Unmarshal(content, &file); err != nil {
		return err
	}
	now := driverNames(plans)
	var lost []string
	for _, d := range file.Drivers {
		if !slices.Contains(now, d.Name) {
			lost = append(lost, terminal.Line(d.Name))
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("the folder has the output for %s, and this run is for %s: write to another folder, such as %s, or delete this folder to replace it",
		strings.Join(lost, ", "), cmp.Or(strings.Join(now, ", "), "another driver"), folderName(plans))
}

// add adds a file of YAML.
func (f Files) add(path string, parts ...string) {
	f[path] = []byte(written + strings.Join(parts, ""))
}

// byWorkload groups the adoptable plans by their workload, in the order of the input.
func byWorkload(plans []Plan) [][]Plan {
	var groups [][]Plan
	index := map[*Workload]int{}
	for _, p := range plans {
		if !p.Adoptable() {
			continue
		}
		i, ok := index[p.Workload]
		if !ok {
			i = len(groups)
			index[p.Workload], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

// fileName returns the name of a file for a workload. No two workloads have the same: a dot is in neither a kind nor
// a namespace.
func (w *Workload) fileName() string {
	return fmt.Sprintf("%s.%s.%s.yaml", strings.ToLower(w.GetKind()), w.Namespace, w.GetName())
}

// joined returns the documents of all adoptable plans.
func joined(plans []Plan, objects func(Plan) ([]byte, error)) (string, error) {
	var documents []string
	for _, p := range plans {
		if !p.Adoptable() {
			continue
		}
		text, err := objects(p)
		if err != nil {
			return "", err
		}
		if len(text) > 0 {
			documents = append(documents, string(text))
		}
	}
	return strings.Join(documents, "---\n"), nil
}

// addHub adds what the hub needs: the entries of the drivers, and a component for its overlay.
func (f Files) addHub(plans []Plan) error {
	if plans[0].Options.Mode != ModeProxy {
		return nil // the hub is in the driver's Pod
	}
	f.add("drivers.yaml", string(DriversFile(plans)))
	objects, err := joined(plans, Plan.HubObjects)
	if err != nil {
		return err
	}
	f.add("hub/networkpolicy.yaml", objects)
	f.add("hub/kustomization.yaml", "# For the overlay of the hub: name this folder under components.\n",
		"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n", list("resources", "networkpolicy.yaml"))
	return nil
}

// list returns a list of paths in YAML.
func list(key string, paths ...string) string {
	if len(paths) == 0 {
		return ""
	}
	return key + ":\n  - " + strings.Join(paths, "\n  - ") + "\n"
}
