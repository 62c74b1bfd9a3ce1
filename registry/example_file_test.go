package registry

import (
	"os"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

const exampleFile = "../drivers.yaml"

func TestExampleFileIsValid(t *testing.T) {
	config, err := ParseFile(exampleFile)
	must(t, err)
	if len(config.Drivers()) == 0 || len(config.Warnings()) > 0 {
		t.Errorf("the example has the drivers %v and the warnings %v", config.Drivers(), config.Warnings())
	}
}

func TestExampleFileDocumentsEverySettingWithItsDefault(t *testing.T) {
	data, err := os.ReadFile(exampleFile)
	must(t, err)
	var document yaml.Node
	must(t, yaml.Unmarshal(data, &document))
	_, defaults := lookUp(t, document.Content[0], "defaults")
	_, drivers := lookUp(t, document.Content[0], "drivers")
	for _, s := range settings {
		node := defaults
		if s.key == "lease.name" { // of use in an entry only
			node = drivers.Content[0]
		}
		var comment string
		for key := range strings.SplitSeq(s.key, ".") {
			comment, node = lookUp(t, node, key)
		}
		byDefault := s.write(&Driver{Settings: DefaultSettings()})
		if node.Kind == yaml.SequenceNode && len(node.Content) == 0 {
			node.Value = "[]"
		}
		if written := strings.Trim(byDefault, `"`); node.Value != written {
			t.Errorf("%s is %q, its default is %s", s.key, node.Value, byDefault)
		}
		if !strings.Contains(comment, "Write "+s.want) {
			t.Errorf("the comment on %s does not say \"Write %s\": %s", s.key, s.want, comment)
		}
	}
}

// lookUp returns the comment on a key of a mapping, as one line, and its value.
func lookUp(t *testing.T, mapping *yaml.Node, key string) (string, *yaml.Node) {
	t.Helper()
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			comment := strings.ReplaceAll(mapping.Content[i].HeadComment, "#", " ")
			return strings.Join(strings.Fields(comment), " "), mapping.Content[i+1]
		}
	}
	t.Fatalf("%s has no key %s", exampleFile, key)
	return "", nil
}
