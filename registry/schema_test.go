package registry

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

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

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return data
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
