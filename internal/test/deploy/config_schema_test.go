package deploy_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// The schema of drivers.yaml takes what the parser takes, and says what is wrong while somebody types.
func TestSchemaOfTheConfigurationIsSatisfiedByValidFilesAndViolatedByTypingMistakes(t *testing.T) {
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(registry.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	violations := func(path string) string {
		text, err := yaml.YAMLToJSON(readFile(t, path))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		file, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := compiled.Validate(file); err != nil {
			return err.Error()
		}
		return ""
	}
	const testdata = "../registry/testdata/"
	valid, err := filepath.Glob(testdata + "valid/*.yaml")
	if err != nil || len(valid) < 2 {
		t.Fatalf("files %v: %v", valid, err)
	}
	for _, path := range append(valid, "../drivers.yaml") {
		if _, err := registry.ParseManifestFile(path); err != nil {
			t.Errorf("%s is not valid: %v", path, err)
		}
		if got := violations(path); got != "" {
			t.Errorf("%s: %s", path, got)
		}
	}
	for file, want := range map[string][]string{
		"eight-mistakes": {"'/apiVersion'", "'/defaults/timeout'", "'/drivers/0/endpoint'", "'/drivers/0/workers'", "'timeuot' not allowed", "'nmae' not allowed", "missing property 'name'"},
		"probe":          {"'/defaults/probe'", "'/drivers/0/probe/interval'", "'/drivers/1/probe'", "'/drivers/2/probe'"},
		"endpoints":      {"'/drivers/0/endpoint'", "'/drivers/3/endpoint'", "'/drivers/6/endpoint'", "'/drivers/12/endpoint'"},
		"kube-api":       {"'/defaults/kubeAPI/qps'", "'/drivers/1/kubeAPI/qps'", "'/drivers/2/kubeAPI/qps'", "'/drivers/10/kubeAPI'"},
		"leases":         {"'/defaults/lease/namespace'", "'/drivers/0/lease/name'", "'/drivers/4/lease/name'"},
		"mode":           {"'/defaults/mode'", "'/drivers/0/mode'"},
		"limits":         {"'/defaults/maxPerNode'", "'/drivers/0/maxPerNode'", "'/drivers/4/parallelMultiNode'", "'/drivers/6/secrets'", "'/drivers/8/secrets/0'"},
		"transport":      {"'/drivers/4/tls'", "'/drivers/6/tls/caFile'", "'/drivers/9/insecure'"},
		"structure":      {"missing properties 'kind', 'drivers'", "'/defaults'"},
		"discovery":      {"'csidriver' not allowed", "'/discovery/csiDrivers/endpointTemplate'"},
	} {
		got := violations(testdata + file + ".yaml")
		for _, words := range want {
			if !strings.Contains(got, words) {
				t.Errorf("%s.yaml: nothing about %s in %s", file, words, got)
			}
		}
	}
}
