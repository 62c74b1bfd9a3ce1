package registry

import (
	"encoding/json"
	"maps"
	"strings"

	"gopkg.in/yaml.v3"
)

// table is a mapping of drivers.yaml: its keys in the order in which errors list them. Parse
// reads by it what S holds, and the JSON Schema follows from it.
type table[S any] []field[S]

// field is one key of a mapping, with its value or with a group of keys.
type field[S any] struct {
	key      string
	want     string // what a user is to write
	required bool
	group    table[S] // nil for a value
	schema   schema   // of the value
	// read reports what is wrong with a value, and leaves it alone then.
	read       func(p *parser, n *yaml.Node, path string, into *S)
	setDefault func(into *S)        // of a setting
	write      func(from *S) string // in YAML
}

// value returns the field of a key with a type of value, which is kept in a part of S.
func value[S, T any](key string, k valueType[T], in func(*S) *T) field[S] {
	return field[S]{
		key: key, want: k.want, schema: k.schema,
		read: func(p *parser, n *yaml.Node, path string, into *S) {
			if v, ok := k.read(p, n, path); ok {
				*in(into) = v
			} else {
				p.misread[path] = true
			}
		},
		write: func(from *S) string { return k.write(*in(from)) },
	}
}

// inner returns the field of a key with a mapping of its own, which is kept in a part of S.
func inner[S, T any](key, description string, t table[T], in func(*S) *T) field[S] {
	return field[S]{key: key, schema: t.schema(description), read: func(p *parser, n *yaml.Node, path string, into *S) {
		t.read(p, n, path, in(into))
	}}
}

// must marks a required key.
func (r field[S]) must() field[S] {
	r.required = true
	return r
}

// child is the path of a key in the mapping at a path.
func child(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// read reads a mapping and reports every key that it may not have. Of a key that is there twice
// the first value counts.
func (t table[S]) read(p *parser, n *yaml.Node, path string, into *S) {
	if n.Kind != yaml.MappingNode {
		p.report(n.Line, path, mistyped(n, "a mapping of keys to values").Error())
		return
	}
	lines := map[string]int{} // of the keys so far
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := child(path, clip(key.Value))
		if key.Kind != yaml.ScalarNode {
			p.report(key.Line, path, "a key must be a plain word, not a mapping, a list or an alias: write it out")
		} else if first, twice := lines[key.Value]; twice {
			p.reportf(key.Line, at, "the key is already on line %d: remove one of them", first)
		} else {
			lines[key.Value] = key.Line
			t.place(p, key, value, path, at)
		}
	}
	for _, r := range t {
		at := child(path, r.key)
		switch value := p.values[at]; {
		case value != nil && r.group != nil:
			r.group.read(p, value, at, into)
		case value != nil:
			r.read(p, value, at, into)
		case r.required && !p.misspelt[at]:
			p.report(n.Line, at, "missing: write "+r.want)
		}
	}
}

// place notes the value of a key of the mapping at a path, or reports the key.
func (t table[S]) place(p *parser, key, value *yaml.Node, path, at string) {
	var outer, all []string
	for _, r := range t {
		if r.key == key.Value {
			p.values[at] = value
			return
		}
		outer, all = append(outer, r.key), append(all, r.key)
		for _, below := range r.group {
			all = append(all, r.key+"."+below.key)
		}
	}
	near, ok := nearest(key.Value, all)
	group, below, nested := strings.Cut(near, ".")
	switch {
	case key.Tag == "!!merge":
		p.report(key.Line, at, "merge keys are not supported: write the values out; what holds for all drivers belongs under defaults")
	case !ok:
		p.reportf(key.Line, at, "unknown key: valid keys are %s", strings.Join(outer, ", "))
	case nested:
		p.reportf(key.Line, at, "unknown key: did you mean %s under %s?", below, group)
	default:
		p.reportf(key.Line, at, "unknown key: did you mean %s?", near)
	}
	p.misspelt[child(path, near)] = true
}

// nearest returns the word that a misspelt word most likely means: all but one letter, or two that are swapped, are the same.
// Case and separators do not count (retry_max and retryMax are near retry.max).
func nearest(misspelt string, words []string) (string, bool) {
	for _, same := range []bool{true, false} {
		for _, word := range words {
			a, b := fold(misspelt), fold(word)
			if a == b || !same && oneMistake(a, b) {
				return word, true
			}
		}
	}
	return "", false
}

func fold(word string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(word))
}

func oneMistake(a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 1 && len(b) <= 1 || len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
}

// leaves returns the fields of all values, those in a group with keys like "retry.max".
func (t table[S]) leaves() []field[S] {
	var all []field[S]
	for _, r := range t {
		if r.group == nil {
			all = append(all, r)
		}
		for _, below := range r.group.leaves() {
			below.key = r.key + "." + below.key
			all = append(all, below)
		}
	}
	return all
}

// schema is a JSON Schema of one value, as encoding/json writes it.
type schema map[string]any

// Schema returns the JSON Schema (draft 2020-12) of drivers.yaml, made from the tables that
// Parse reads by. Every file that Parse accepts satisfies it. A file that satisfies it can
// still be wrong: Parse alone checks what keys demand of each other, the ranges of
// durations, and names that occur twice.
func Schema() []byte {
	root := fileTable.schema("configuration of csi-attach-hub")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "drivers.yaml of csi-attach-hub"
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // it holds nothing but strings, numbers, lists and maps
	}
	return append(out, '\n')
}

// schema returns the JSON Schema of the mapping. It allows no other keys.
func (t table[S]) schema(description string) schema {
	properties := map[string]schema{}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if description != "" {
		s["description"] = description
	}
	var required []string
	for _, r := range t {
		properties[r.key] = r.schema
		if r.group != nil {
			properties[r.key] = r.group.schema("")
		}
		if r.required {
			required = append(required, r.key)
		}
	}
	if required != nil {
		s["required"] = required
	}
	return s
}

// with returns the schema with a description.
func (s schema) with(description string) schema {
	s = maps.Clone(s)
	s["description"] = description
	return s
}

func listOf(element schema) schema { return schema{"type": "array", "items": element} }

// pattern is a string of a form.
func pattern(form string) schema { return schema{"type": "string", "pattern": form} }
