package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

func TestSchemaIsSatisfiedByEveryValidFile(t *testing.T) {
	files, err := filepath.Glob("testdata/valid/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v: %v", files, err)
	}
	for _, file := range append(files, exampleFile) {
		if _, err := ParseFile(file); err != nil {
			t.Errorf("%s is not valid: %v", file, err)
		}
		for _, problem := range violations(t, read(t, file)) {
			t.Errorf("%s: %s", file, problem)
		}
	}
}

// The schema is there to say what is wrong while somebody types.
func TestSchemaIsViolatedByTypingMistakes(t *testing.T) {
	for file, want := range map[string][]string{
		"eight-mistakes": {"apiVersion", "defaults.timeout", "drivers[0].endpoint", "drivers[0].workers", "drivers[1].timeuot", "drivers[2].nmae", "drivers[2].name"},
		"probe":          {"defaults.probe.timeout", "drivers[0].probe.interval", "drivers[1].probe.timeout", "drivers[2].probe"},
		"endpoints":      {"drivers[0].endpoint", "drivers[3].endpoint", "drivers[6].endpoint", "drivers[12].endpoint"},
		"kube-api":       {"defaults.kubeAPI.qps", "drivers[1].kubeAPI.qps", "drivers[2].kubeAPI.qps", "drivers[10].kubeAPI"},
		"leases":         {"defaults.lease.namespace", "drivers[0].lease.name", "drivers[4].lease.name"},
		"mode":           {"defaults.mode", "drivers[0].mode"},
		"limits":         {"defaults.maxPerNode", "drivers[0].maxPerNode", "drivers[1].maxPerNode", "drivers[4].parallelMultiNode", "drivers[5].parallelMultiNode", "drivers[6].secrets", "drivers[8].secrets[0]"},
		"transport":      {"drivers[4].tls.caFile", "drivers[6].tls.caFile", "drivers[9].insecure", "drivers[11].insecure"},
		"structure":      {"kind", "drivers", "defaults"},
		"discovery":      {"discovery.csidriver", "discovery.csiDrivers.endpointTemplate"},
		"two-documents":  {"workers"},
	} {
		got := violations(t, read(t, "testdata/"+file+".yaml"))
		for _, path := range want {
			if !slices.ContainsFunc(got, func(problem string) bool { return strings.HasPrefix(problem, path+": ") }) {
				t.Errorf("%s.yaml: nothing about %s in %q", file, path, got)
			}
		}
	}
}

// The parser lists its keys where it finds an unknown one.
func TestSchemaAndParserKnowTheSameKeys(t *testing.T) {
	const unknown = "zzzzzzzzzzzzzzzzzzzz"
	visit(t, loadSchema(t), nil, func(path []string, properties map[string]any) {
		want := slices.Sorted(maps.Keys(properties))
		document := map[string]any{unknown: 1}
		for _, key := range slices.Backward(path) {
			if key == "[]" {
				continue
			}
			if key == "drivers" {
				document = map[string]any{key: []any{document}}
			} else {
				document = map[string]any{key: document}
			}
		}
		data, err := yaml.Marshal(document)
		must(t, err)
		_, err = Parse("f", data)
		var got []string
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if _, keys, ok := strings.Cut(line, unknown+": unknown key: valid keys are "); ok {
				got = slices.Sorted(slices.Values(strings.Split(keys, ", ")))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("keys of %v (-schema +parser):\n%s", path, diff)
		}
	})
}

// visit calls do for every mapping of a schema.
func visit(t *testing.T, s map[string]any, path []string, do func(path []string, properties map[string]any)) {
	t.Helper()
	if items, ok := s["items"].(map[string]any); ok {
		visit(t, items, append(slices.Clone(path), "[]"), do)
	}
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		return
	}
	do(path, properties)
	for key, value := range properties {
		visit(t, value.(map[string]any), append(slices.Clone(path), key), do)
	}
}

func loadSchema(t *testing.T) map[string]any {
	t.Helper()
	var s map[string]any
	must(t, json.Unmarshal(Schema(), &s))
	return s
}

// violations checks a file against the schema: "path: what is wrong".
func violations(t *testing.T, data []byte) []string {
	t.Helper()
	var inYAML any
	must(t, yaml.NewDecoder(bytes.NewReader(data)).Decode(&inYAML))
	asJSON, err := json.Marshal(stringKeys(inYAML))
	must(t, err)
	var value any
	must(t, json.Unmarshal(asJSON, &value))
	c := &checker{t: t}
	c.check(loadSchema(t), value, "")
	return c.problems
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return data
}

func stringKeys(v any) any {
	switch v := v.(type) {
	case map[any]any:
		out := map[string]any{}
		for key, value := range v {
			out[fmt.Sprint(key)] = stringKeys(value)
		}
		return out
	case map[string]any:
		for key, value := range v {
			v[key] = stringKeys(value)
		}
	case []any:
		for i := range v {
			v[i] = stringKeys(v[i])
		}
	}
	return v
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
