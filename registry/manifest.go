package registry

import (
	"fmt"
	"io"
	"iter"
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
		config, errs := readContent(path).load(DefaultSettings(), nil)
		if errs != nil {
			return nil, errs
		}
		return []*Config{config}, nil
	}
	data, err := readFile(path)
	if err != nil {
		return nil, Errors{{File: path, Message: err.Error()}}
	}
	return ParseManifest(path, data)
}

// ParseManifestReader is ParseManifest for input without a path, such as stdin.
func ParseManifestReader(file string, r io.Reader) ([]*Config, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, Errors{{File: file, Message: cause(err).Error()}}
	}
	return ParseManifest(file, data)
}

// ParseManifest reads the content of a drivers.yaml, or of Kubernetes manifests with
// ConfigMaps that hold one: YAML documents and Lists, as kubectl and kustomize print them. The
// keys *.yaml of a ConfigMap that holds a DriverConfig are together one configuration, as the
// files of a folder. Other objects are ignored.
//
// It returns a Config for each such ConfigMap, at least one, or fails with Errors, which hold
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
		p.report(n.Line, "", "a DriverConfig is not a Kubernetes object: put it into a ConfigMap under a key that ends with .yaml")
	}
	var result []*Config
	for _, files := range p.configFiles(configMaps) {
		config, errs := load(files, p.base, nil)
		p.errors = append(p.errors, errs...)
		result = append(result, config)
	}
	if len(p.errors) > 0 {
		slices.SortStableFunc(p.errors, compareErrors)
		return nil, p.errors
	}
	return result, nil
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
	for k, value := range pairs(n) {
		if k == key {
			return value
		}
	}
	return nil
}

// pairs returns the keys and values of a mapping, nothing for another node.
func pairs(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content) && yield(n.Content[i].Value, n.Content[i+1]); i += 2 {
		}
	}
}

// configFiles returns the files of each ConfigMap that holds a configuration. It reports if there is none.
func (p *parser) configFiles(configMaps []*yaml.Node) (folders [][]fileContent) {
	for _, n := range configMaps {
		data, binary := valueAt(n, "data"), valueAt(n, "binaryData")
		found := valueAt(data, manifestKey) != nil || valueAt(binary, manifestKey) != nil
		for key, value := range pairs(data) {
			isRead, _ := isConfigFile(key)
			found = found || isRead && (strings.Contains(value.Value, configKind) || strings.Contains(value.Value, apiVersion))
		}
		if !found {
			continue
		}
		var files []fileContent
		for key, value := range pairs(data) {
			if isRead, err := isConfigFile(key); isRead && isString(value) {
				files = append(files, p.configFile(key, value, err))
			} else if isRead {
				p.report(value.Line, "data."+pathKey(key), mistyped(value, "a block of text ("+key+": |)").Error())
			}
		}
		for key, value := range pairs(binary) {
			if isRead, _ := isConfigFile(key); isRead {
				p.report(value.Line, "binaryData."+pathKey(key), "must be text: move it to data")
			}
		}
		folders = append(folders, files)
	}
	switch {
	case len(folders) > 0:
	case len(configMaps) == 0:
		p.report(0, "", "found neither a drivers.yaml nor a ConfigMap: pass the file itself, or a manifest with the ConfigMap that holds it")
	default:
		p.report(configMaps[0].Line, "data", "no ConfigMap holds a DriverConfig: write it as text under the key drivers.yaml, or several under keys that end with .yaml")
	}
	return folders
}

// configFile returns the file that a value of a ConfigMap becomes. Its lines are those of the manifest, as far as they are lines there.
func (p *parser) configFile(key string, value *yaml.Node, err error) fileContent {
	if value.Style&yaml.LiteralStyle == 0 {
		return fileContent{path: fmt.Sprintf("%s:%d: %s", p.file, value.Line, clip(key)), data: []byte(value.Value), err: err}
	}
	return fileContent{path: p.file, line: value.Line, data: []byte(strings.Repeat("\n", value.Line) + value.Value), err: err}
}
