package registry

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// object is a mapping of a file whose keys are all known.
type object struct {
	line     int
	path     string                // "drivers[1]"; "" for the file itself
	values   map[string]*yaml.Node // by key; "retry.max" for max under retry
	misspelt map[string]bool       // keys that an unknown one probably stands for
}

// child is the path of a key of the object.
func (o object) child(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

// object reads a mapping and reports every key that it may not have. Of a key
// that is there twice the first value counts.
func (p *parser) object(n *yaml.Node, path string, m mapping) object {
	o := object{line: n.Line, path: path, values: map[string]*yaml.Node{}, misspelt: map[string]bool{}}
	if n.Kind != yaml.MappingNode {
		p.report(n.Line, path, mistyped(n, "a mapping of keys to values").Error())
		return o
	}
	lines := map[string]int{} // of the keys so far
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			p.report(key.Line, path, "a key must be a plain word, not a mapping, a list or an alias: write it out")
			continue
		}
		if first, twice := lines[key.Value]; twice {
			p.reportf(key.Line, o.child(pathKey(key.Value)), "the key is already on line %d: remove one of them", first)
			continue
		}
		lines[key.Value] = key.Line
		p.member(o, key, value, m)
	}
	return o
}

// member puts one key of a mapping into its object, or reports it.
func (p *parser) member(o object, key, value *yaml.Node, m mapping) {
	path := o.child(pathKey(key.Value))
	i, group := m.index(key.Value), m.under(key.Value)
	switch {
	case i >= 0 && m[i].misplaced:
		p.report(key.Line, path, "applies to one driver only: move it to the entry of that driver")
	case i >= 0 && !strings.Contains(key.Value, "."):
		o.values[key.Value] = value
	case group != nil:
		for inner, v := range p.object(value, path, group).values {
			o.values[key.Value+"."+inner] = v
		}
	case key.Tag == "!!merge":
		p.report(key.Line, path, "merge keys are not supported: write the values out; what holds for all drivers belongs under defaults")
	default:
		p.unknown(o, key, path, m)
	}
}

// unknown reports an unknown key, with the known key that is nearest to it.
func (p *parser) unknown(o object, key *yaml.Node, path string, m mapping) {
	outer, values := m.keys()
	near, ok := Nearest(key.Value, values)
	if !ok {
		near, ok = Nearest(key.Value, outer)
	}
	if !ok {
		p.reportf(key.Line, path, "unknown key: valid keys are %s", strings.Join(outer, ", "))
		return
	}
	o.misspelt[near] = true
	if group, inner, nested := strings.Cut(near, "."); nested {
		near = inner + " under " + group
	}
	p.reportf(key.Line, path, "unknown key: did you mean %s?", near)
}

// pathKey is a key as a path shows it.
func pathKey(key string) string {
	plain := key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
	if plain {
		return clip(key)
	}
	return quote(key)
}
