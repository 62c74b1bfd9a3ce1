package adopt

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Files are the content of files by their paths below a folder.
type Files map[string][]byte

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

// PostRender returns the objects as they are at a step: all documents that were read, the workloads changed, and the
// objects beside them. It is a filter for what Helm renders: documents without a csi-attacher stay byte for byte.
func PostRender(objects []Object, plans []Plan, step Step) ([]byte, error) {
	changed := map[Source]map[string]any{}
	var added [][]byte
	for _, group := range byWorkload(plans) {
		content, err := Patched(group, step)
		if err != nil {
			return nil, err
		}
		changed[group[0].Workload.Source] = content
		for _, p := range group {
			more, err := p.DriverObjects()
			if err != nil {
				return nil, err
			}
			added = append(added, more)
		}
	}
	var documents [][]byte
	for _, o := range objects {
		content, isChanged := changed[o.Source]
		if !isChanged && o.Raw != nil {
			documents = append(documents, append(bytes.TrimSpace(o.Raw), '\n'))
			continue
		}
		if !isChanged {
			content = o.Object
		}
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o, err)
		}
		documents = append(documents, text)
	}
	return bytes.Join(append(documents, added...), []byte("---\n")), nil
}
