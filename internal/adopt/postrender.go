package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// PostRender returns the manifests of a chart as they are at a step: input with the workloads changed, and the objects
// beside them behind it. Documents without a csi-attacher stay byte for byte. objects must have been read from input
// alone. A plan that cannot be adopted is an error, and so is a workload that has the proxy already: a sync has to
// fail rather than go on without the proxy.
func PostRender(input []byte, objects []Object, plans []Plan, step Step) ([]byte, error) {
	if err := Refusals(plans); err != nil {
		return nil, err
	}
	changed := map[int]map[int][]byte{} // by document, by index of the object
	var added [][]byte
	if err := CheckOriginal(plans); err != nil {
		return nil, err
	}
	for _, group := range byWorkload(plans) {
		w := group[0].Workload
		content, err := Patched(group, step)
		if err != nil {
			return nil, err
		}
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Object, err)
		}
		i := slices.IndexFunc(objects, func(o Object) bool { return same(o, w.Object) })
		n := w.Source.Document
		if changed[n] == nil {
			changed[n] = map[int][]byte{}
		}
		changed[n][i] = text
		for _, p := range group {
			more, err := p.DriverObjects()
			if err != nil {
				return nil, err
			}
			if len(more) > 0 {
				added = append(added, more)
			}
		}
	}
	out, err := replace(input, objects, changed)
	if err != nil {
		return nil, err
	}
	for _, more := range added {
		if len(out) > 0 && !bytes.HasSuffix(out, []byte("\n")) {
			out = append(out, '\n')
		}
		out = append(append(out, "---\n"...), more...)
	}
	return out, nil
}

// OnlyHooks reports whether all objects are hooks of Helm. Helm 4 can pass hooks and the rest of a chart in two runs.
func OnlyHooks(objects []Object) bool {
	for _, o := range objects {
		if o.GetAnnotations()["helm.sh/hook"] == "" {
			return false
		}
	}
	return len(objects) > 0
}

// HasProxies reports whether a workload has a proxy, as in what PostRender has written.
func HasProxies(objects []Object) bool {
	return slices.ContainsFunc(objects, func(o Object) bool {
		w, err := newWorkload(o, "")
		return err == nil && w.Template.Labels[proxyLabel] != ""
	})
}

// same reports whether two values are the same object of the input.
func same(a, b Object) bool {
	return a.Source == b.Source && a.GroupVersionKind() == b.GroupVersionKind() && a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}

// replace returns the input with the changed objects. A List with one becomes a document for each of its items.
func replace(input []byte, objects []Object, changed map[int]map[int][]byte) ([]byte, error) {
	var out []byte
	end := 0
	for n, d := range documents(input) {
		if len(changed[n+1]) == 0 {
			continue
		}
		var texts [][]byte
		for i, o := range objects {
			if o.Source.Document != n+1 {
				continue
			}
			text, isChanged := changed[n+1][i]
			if !isChanged {
				var err error
				if text, err = yaml.Marshal(o.Object); err != nil {
					return nil, fmt.Errorf("%s: %w", o, err)
				}
			}
			texts = append(texts, text)
		}
		if len(texts) == 0 {
			return nil, errors.New("the documents of the input cannot be told apart")
		}
		out = append(out, input[end:d.first]...)
		out = append(out, leadingComments(input[d.first:d.last])...)
		out = append(out, bytes.Join(texts, []byte("---\n"))...)
		end = d.last
	}
	return append(out, input[end:]...), nil
}

// span is where a document is: input[first:last].
type span struct{ first, last int }

// documents returns the YAML documents of an input, as Read counts them.
func documents(input []byte) []span {
	var all []span
	first, at := 0, 0
	for line := range bytes.Lines(input) {
		if bytes.HasPrefix(line, []byte("---")) && at > first {
			all = append(all, span{first, at})
			first = at + len(line)
		}
		at += len(line)
	}
	if at > first {
		all = append(all, span{first, at})
	}
	return all
}

// leadingComments returns the lines of a document before its content: "# Source:" of Helm, and a separator.
func leadingComments(document []byte) []byte {
	n := 0
	for line := range bytes.Lines(document) {
		if text := strings.TrimSpace(string(line)); text != "" && text[0] != '#' && !strings.HasPrefix(text, "---") {
			break
		}
		n += len(line)
	}
	return document[:n]
}
