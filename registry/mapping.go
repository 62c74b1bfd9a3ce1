package registry

import (
	"slices"
	"strings"
)

// mapping describes a mapping of drivers.yaml: the keys that Parse accepts in it, in the
// order in which errors list them, and its JSON Schema.
type mapping []field

// field is one key of a mapping.
type field struct {
	key       string // "retry.max" for max under retry
	required  bool
	misplaced bool   // belongs in the entry of a driver only
	schema    schema // of the value
}

// keys returns the keys of the mapping itself, and those of all values in it.
func (m mapping) keys() (outer, values []string) {
	for _, f := range m {
		if f.misplaced {
			continue
		}
		values = append(values, f.key)
		if key, _, _ := strings.Cut(f.key, "."); !slices.Contains(outer, key) {
			outer = append(outer, key)
		}
	}
	return outer, values
}

// index returns the index of the field with a key, -1 if there is none.
func (m mapping) index(key string) int {
	return slices.IndexFunc(m, func(f field) bool { return f.key == key })
}

// under returns the mapping at a key, nil if there is none.
func (m mapping) under(key string) mapping {
	var inner mapping
	for _, f := range m {
		if rest, ok := strings.CutPrefix(f.key, key+"."); ok {
			f.key = rest
			inner = append(inner, f)
		}
	}
	return inner
}

// schema returns the JSON Schema of the mapping. It allows no other keys.
func (m mapping) schema(description string) schema {
	properties := map[string]schema{}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if description != "" {
		s["description"] = description
	}
	var required []string
	outer, _ := m.keys()
	for _, key := range outer {
		i := m.index(key)
		if i < 0 {
			properties[key] = m.under(key).schema("")
			continue
		}
		properties[key] = m[i].schema
		if m[i].required {
			required = append(required, key)
		}
	}
	if required != nil {
		s["required"] = required
	}
	return s
}
