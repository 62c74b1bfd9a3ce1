package registry

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// manifestKey is the key under which the ConfigMap of the hub holds a drivers.yaml.
const manifestKey = "drivers.yaml"

const noConfiguration = "holds neither a DriverConfig nor a ConfigMap with one: pass the file itself, or write it in the ConfigMap as text under the key drivers.yaml, or several under keys that end with .yaml"

// ParseManifestFile is ParseManifest for a file, or reads each *.yaml of a folder together. It fails with Errors, also if there
// is no such file.
func ParseManifestFile(path string) ([]*Config, error) {
	c := readContent(path)
	if len(c.files) == 1 && c.files[0].path == path {
		return ParseManifest(path, c.files[0].data)
	}
	return one(c.load(DefaultSettings(), nil))
}

// ParseManifest reads the content of a drivers.yaml, or of Kubernetes manifests with
// ConfigMaps that hold one: YAML documents, as kustomize and helm print them. The
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
	configMaps, configs := ofKind(documents, "ConfigMap"), ofKind(documents, configKind)
	if len(configMaps) == 0 && (len(documents) <= 1 || len(configs) > 0) {
		return one(fileContent{path: file, data: data}.parse(p.base, p.base))
	}
	for _, n := range configs {
		p.report(n.Line, "", "a DriverConfig is not a Kubernetes object: put it into a ConfigMap under a key that ends with .yaml")
	}
	var result []*Config
	for _, n := range configMaps {
		if files, found := p.configFiles(n); found {
			config, errs := load(files, p.base, nil)
			p.errors = append(p.errors, errs...)
			result = append(result, config)
		}
	}
	if len(result) == 0 {
		p.report(0, "", noConfiguration)
	}
	if len(p.errors) > 0 {
		return nil, sorted(p.errors)
	}
	return result, nil
}

// one returns the one Config of a file or a folder.
func one(config *Config, errs Errors) ([]*Config, error) {
	if errs != nil {
		return nil, errs
	}
	return []*Config{config}, nil
}

// manifest is an object as far as it is read.
type manifest struct {
	Kind string
	Data yaml.Node
}

func ofKind(objects []*yaml.Node, kind string) []*yaml.Node {
	return slices.DeleteFunc(slices.Clone(objects), func(n *yaml.Node) bool {
		var m manifest
		return n.Decode(&m) != nil || m.Kind != kind
	})
}

// configFiles returns the files of a ConfigMap, and reports whether they hold a configuration.
func (p *parser) configFiles(configMap *yaml.Node) (files []fileContent, found bool) {
	var m manifest
	_ = configMap.Decode(&m) // as before
	for i := 0; m.Data.Kind == yaml.MappingNode && i+1 < len(m.Data.Content); i += 2 {
		key, value := m.Data.Content[i].Value, m.Data.Content[i+1]
		isRead, err := isConfigFile(key)
		if !isRead {
			continue
		}
		found = found || key == manifestKey || strings.Contains(value.Value, configKind) || strings.Contains(value.Value, apiVersion)
		f := fileContent{path: p.file, line: value.Line, data: []byte(strings.Repeat("\n", value.Line) + value.Value), err: err}
		if value.Style&yaml.LiteralStyle == 0 { // its lines are no lines of the manifest
			f = fileContent{path: fmt.Sprintf("%s:%d: %s", p.file, value.Line, clip(key)), data: []byte(value.Value), err: err}
		}
		if !isString(value) {
			f.err = mistyped(value, "a block of text ("+clip(key)+": |)")
		}
		files = append(files, f)
	}
	return files, found
}
