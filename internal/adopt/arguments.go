package adopt

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

var variable = regexp.MustCompile(`\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)`)

// variables are the environment of a container, as far as the manifest says it.
type variables struct {
	values  map[string]string
	unknown map[string]bool // those whose value the manifest does not have
	more    bool            // there are others, whose names it does not have
}

// environment returns the variables of a container.
func environment(w *Workload, c corev1.Container) variables {
	v := variables{values: map[string]string{}, unknown: map[string]bool{}, more: len(c.EnvFrom) > 0}
	for _, e := range c.Env {
		delete(v.values, e.Name)
		delete(v.unknown, e.Name)
		value, missing := v.expand(e.Value)
		switch from := e.ValueFrom; {
		case from == nil && len(missing) == 0:
			v.values[e.Name] = value
		case from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			v.values[e.Name] = w.Namespace
		case from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "spec.serviceAccountName":
			v.values[e.Name] = cmp.Or(w.Template.Spec.ServiceAccountName, "default")
		default:
			v.unknown[e.Name] = true
		}
	}
	return v
}

// expand replaces the variables of a text as the kubelet does: a variable that does not exist stays as it is written.
// Variables whose value is not known stay too, and are returned.
func (v variables) expand(s string) (string, []string) {
	var missing []string
	expanded := variable.ReplaceAllStringFunc(s, func(m string) string {
		if m == "$$" {
			return "$"
		}
		name := m[2 : len(m)-1]
		if value, ok := v.values[name]; ok {
			return value
		}
		ofService := strings.HasSuffix(name, "_SERVICE_HOST") || strings.HasSuffix(name, "_SERVICE_PORT")
		if (v.unknown[name] || v.more || ofService) && !slices.Contains(missing, m) {
			missing = append(missing, m)
		}
		return m
	})
	return expanded, missing
}

// wordsOf returns the command and the arguments of a container with the values of its variables, and the
// variables whose value is not known.
func wordsOf(w *Workload, c corev1.Container) (line, unknown []string) {
	environment := environment(w, c)
	for _, word := range slices.Concat(c.Command, c.Args) {
		expanded, missing := environment.expand(word)
		line = append(line, expanded)
		unknown = append(unknown, slices.DeleteFunc(missing, func(m string) bool { return slices.Contains(unknown, m) })...)
	}
	return line, unknown
}
