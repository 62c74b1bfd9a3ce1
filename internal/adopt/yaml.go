package adopt

import (
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// yamlString returns a text as YAML, in quotes where it needs them: namespaces can be called 1234, 1e3, true or null.
func yamlString(text string) string {
	plain, err := yaml.Marshal(text)
	if err != nil || strings.TrimSuffix(string(plain), "\n") != text || text[0] <= '9' { // YAML 1.1 and 1.2 read digits differently
		return strconv.Quote(text)
	}
	return text
}

func yamlStrings(texts []string) []string {
	var all []string
	for _, text := range texts {
		all = append(all, yamlString(text))
	}
	return all
}
