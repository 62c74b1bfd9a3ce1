package registry

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// manifestKey is the key under which the ConfigMap of the hub holds a drivers.yaml.
const manifestKey = "drivers.yaml"

// ParseManifestFile is ParseManifest for a file, or Parse for each *.yaml of a folder together. It fails with Errors, also if there
// is no such file.
func ParseManifestFile(path string) ([]*Config, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		l := readContent(path).load(FileOptions{Path: path, Defaults: DefaultSettings()}, loaded{})
		if l.errors != nil {
			return nil, l.errors
		}
		return []*Config{l.config}, nil
	}
	data, err := readFile(path)
	if err != nil {
		return nil, Errors{{File: path, Message: err.Error()}}
	}
	return ParseManifest(path, data)
}

// ParseManifestReader is ParseManifest for input without a path, such as stdin.
func ParseManifestReader(file string, r io.Reader) ([]*Config, error) {
	data, err := readAll(r)
	if err != nil {
		return nil, Errors{{File: file, Message: err.Error()}}
	}
	return ParseManifest(file, data)
}

// ParseManifest reads the content of a drivers.yaml, or of Kubernetes manifests with
// ConfigMaps that hold one: YAML documents and Lists, as kubectl and kustomize print them. A
// ConfigMap holds it under the key drivers.yaml. If no ConfigMap has this key, it is the only
// key of a ConfigMap. Objects of other kinds are ignored.
//
// It returns a Config for each drivers.yaml, at least one, or fails with Errors, which hold
// every mistake. Their lines are those of the manifest if the value is a literal block
// (drivers.yaml: |). Otherwise File is "manifest:LINE: KEY" and lines count within the value.
func ParseManifest(file string, data []byte) ([]*Config, error) {
	p := newParser(file)
	documents := p.documents(data)
	if len(p.errors) > 0 {
		return nil, p.errors
	}
	var objects []*yaml.Node
	for _, n := range documents {
		objects = append(objects, withoutLists(n)...)
	}
	configMaps, configs := ofKind(objects, "ConfigMap"), ofKind(objects, configKind)
	single := len(documents) <= 1 && slices.Equal(documents, objects)
	if len(configMaps) == 0 && (single || len(configs) > 0) {
		config, err := Parse(file, data)
		if err != nil {
			return nil, err
		}
		return []*Config{config}, nil
	}
	for _, n := range configs {
		p.report(n.Line, "", "a DriverConfig is not a Kubernetes object: put it into a ConfigMap under the key drivers.yaml")
	}
	return p.embedded(p.configValues(configMaps))
}

// documents returns the roots of all YAML documents that are not empty. A syntax error is
// reported.
func (p *parser) documents(data []byte) []*yaml.Node {
	if len(data) > maxFileSize {
		p.tooLarge()
		return nil
	}
	var roots []*yaml.Node
	text := &lineReader{lines: bytes.SplitAfter(data, []byte("\n"))}
	for decoder := yaml.NewDecoder(text); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return roots
		}
		if err != nil {
			p.syntax(text, err)
			return nil
		}
		if root := document.Content[0]; !isNull(root) {
			roots = append(roots, root)
		}
	}
}

// withoutLists returns the objects of a List, or the object itself.
func withoutLists(n *yaml.Node) []*yaml.Node {
	items := valueAt(n, "items")
	if !strings.HasSuffix(kindOf(n), "List") || items == nil {
		return []*yaml.Node{n}
	}
	var objects []*yaml.Node
	for _, item := range items.Content {
		objects = append(objects, withoutLists(item)...)
	}
	return objects
}

func kindOf(n *yaml.Node) string {
	if kind := valueAt(n, "kind"); kind != nil {
		return kind.Value
	}
	return ""
}

func ofKind(objects []*yaml.Node, kind string) []*yaml.Node {
	return slices.DeleteFunc(slices.Clone(objects), func(n *yaml.Node) bool { return kindOf(n) != kind })
}

// valueAt returns the value of a key, nil if n has no such key.
func valueAt(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// configValue is a value of a ConfigMap that holds a drivers.yaml.
type configValue struct {
	key  string
	node *yaml.Node
}

// configValues returns the values of ConfigMaps that hold a drivers.yaml. It reports if there
// is none.
func (p *parser) configValues(configMaps []*yaml.Node) []configValue {
	var named, only []configValue
	for _, n := range configMaps {
		data := valueAt(n, "data")
		if v := valueAt(data, manifestKey); v != nil {
			named = append(named, configValue{manifestKey, v})
		} else if data != nil && data.Kind == yaml.MappingNode && len(data.Content) == 2 {
			only = append(only, configValue{data.Content[0].Value, data.Content[1]})
		}
		if v := valueAt(valueAt(n, "binaryData"), manifestKey); v != nil {
			p.report(v.Line, "binaryData."+pathKey(manifestKey), "must be text: move it to data")
		}
	}
	if len(only) > 1 {
		only = slices.DeleteFunc(only, func(v configValue) bool { return !strings.Contains(v.node.Value, configKind) })
	}
	switch {
	case len(named) > 0:
		return named
	case len(p.errors) > 0 || len(only) > 0:
		return only
	case len(configMaps) == 0:
		p.report(0, "", "found neither a drivers.yaml nor a ConfigMap: pass the file itself, or a manifest with the ConfigMap that holds it")
	default:
		p.report(configMaps[0].Line, "data", "no ConfigMap has the key drivers.yaml: rename the key that holds the configuration to drivers.yaml")
	}
	return nil
}

// embedded parses the values of ConfigMaps. It fails with these errors and those that p has
// already.
func (p *parser) embedded(values []configValue) ([]*Config, error) {
	var configs []*Config
	for _, v := range values {
		if !isString(v.node) {
			p.report(v.node.Line, "data."+pathKey(v.key), mistyped(v.node, "a block of text (drivers.yaml: |)").Error())
			continue
		}
		inner := newParser(p.file)
		if v.node.Style&yaml.LiteralStyle != 0 {
			inner.above = v.node.Line
		} else { // the lines of the value are not lines of the file
			inner.file = fmt.Sprintf("%s:%d: %s", p.file, v.node.Line, clip(v.key))
		}
		config, err := inner.parse([]byte(v.node.Value))
		if err != nil {
			p.errors = append(p.errors, inner.errors...)
			continue
		}
		configs = append(configs, config)
	}
	if len(p.errors) > 0 {
		slices.SortStableFunc(p.errors, func(a, b Error) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
		return nil, p.errors
	}
	return configs, nil
}
