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
	sources map[string]string // of the values that the manifest does not have
	more    string            // source of all other variables; "" if there are no others
}

// environment returns the variables of a container.
func environment(w *Workload, c corev1.Container) variables {
	v := variables{values: map[string]string{}, sources: map[string]string{}}
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			v.more = "ConfigMap " + from.ConfigMapRef.Name
		} else if from.SecretRef != nil {
			v.more = "Secret " + from.SecretRef.Name
		}
	}
	for _, e := range c.Env {
		delete(v.values, e.Name)
		delete(v.sources, e.Name)
		switch from := e.ValueFrom; {
		case from == nil:
			value, missing := v.expand(e.Value)
			if len(missing) > 0 {
				v.sources[e.Name] = missing[0].source
			} else {
				v.values[e.Name] = value
			}
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			v.values[e.Name] = w.Namespace
		case from.FieldRef != nil && from.FieldRef.FieldPath == "spec.serviceAccountName":
			v.values[e.Name] = cmp.Or(w.Template.Spec.ServiceAccountName, "default")
		case from.FieldRef != nil:
			v.sources[e.Name] = "field " + from.FieldRef.FieldPath + " of the Pod"
		case from.ConfigMapKeyRef != nil:
			v.sources[e.Name] = "ConfigMap " + from.ConfigMapKeyRef.Name
		case from.SecretKeyRef != nil:
			v.sources[e.Name] = "Secret " + from.SecretKeyRef.Name
		default:
			v.sources[e.Name] = "a source outside of the manifest"
		}
	}
	return v
}

// missing is a variable whose value the manifest does not have.
type missing struct{ name, source string }

func (m missing) String() string { return "$(" + m.name + "), from " + m.source }

// expand replaces the variables of a text as the kubelet does: a variable that does not exist stays as it is written.
// Variables whose value is not known stay too, and are returned.
func (v variables) expand(s string) (string, []missing) {
	var all []missing
	expanded := variable.ReplaceAllStringFunc(s, func(m string) string {
		if m == "$$" {
			return "$"
		}
		name := m[2 : len(m)-1]
		if value, ok := v.values[name]; ok {
			return value
		}
		source := cmp.Or(v.sources[name], v.more)
		if strings.HasSuffix(name, "_SERVICE_HOST") || strings.HasSuffix(name, "_SERVICE_PORT") {
			source = cmp.Or(source, "a Service of the namespace")
		}
		if source != "" && !slices.Contains(all, missing{name, source}) {
			all = append(all, missing{name, source})
		}
		return m
	})
	return expanded, all
}

// wordsOf returns the command and the arguments of a container with the values of its variables, and the
// variables whose value is not known.
func wordsOf(w *Workload, c corev1.Container) (line []string, unknown []missing) {
	environment := environment(w, c)
	for _, word := range slices.Concat(c.Command, c.Args) {
		expanded, missing := environment.expand(word)
		line = append(line, expanded)
		for _, m := range missing {
			if !slices.Contains(unknown, m) {
				unknown = append(unknown, m)
			}
		}
	}
	return line, unknown
}
