package registry

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// written returns the value of a key in YAML, on one line: as the user wrote it, or in quotes if YAML would read another
// value or another type.
func written(key, value string) string {
	var document yaml.Node
	err := yaml.Unmarshal([]byte(value), &document)
	asItIs := err == nil && len(document.Content) == 1 && document.Content[0].Kind == yaml.ScalarNode && document.Content[0].Style == 0 && document.Content[0].Value == value
	if asItIs && (isString(document.Content[0]) || !isText(key)) {
		return value
	}
	return flow(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Style: yaml.DoubleQuotedStyle})
}

// isText reports whether the value of a key of an entry is a string.
func isText(key string) bool {
	i := driverMapping.index(key)
	return i >= 0 && driverMapping[i].schema["type"] == "string"
}

// flow returns a node in YAML on one line, without its comments.
func flow(n *yaml.Node) string {
	text, err := yaml.Marshal(withoutComments(n))
	if err != nil {
		panic(err) // it is a node that was parsed, or a string
	}
	return strings.TrimSuffix(string(text), "\n")
}

func withoutComments(n *yaml.Node) *yaml.Node {
	plain := *n
	plain.HeadComment, plain.LineComment, plain.FootComment, plain.Content = "", "", "", nil
	for _, inner := range n.Content {
		plain.Content = append(plain.Content, withoutComments(inner))
	}
	return &plain
}

// changeFlow changes one key of a mapping in braces.
func changeFlow(m *yaml.Node, keys []string, c Change) {
	i := 0
	for i < len(m.Content) && m.Content[i].Value != keys[0] {
		i += 2
	}
	there := i < len(m.Content)
	switch {
	case !there && c.Remove:
	case there && len(keys) > 1 && m.Content[i+1].Kind == yaml.MappingNode:
		inner := m.Content[i+1]
		changeFlow(inner, keys[1:], c)
		if len(inner.Content) == 0 {
			m.Content = append(m.Content[:i], m.Content[i+2:]...)
		}
	case c.Remove:
		m.Content = append(m.Content[:i], m.Content[i+2:]...)
	default:
		value := scalar(written(c.Key, c.Value))
		if len(keys) > 1 {
			value = &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{scalar(keys[1]), value}}
		}
		if there {
			m.Content[i+1] = value
		} else {
			m.Content = append(m.Content, scalar(keys[0]), value)
		}
	}
}

// scalar returns the node of a scalar in YAML.
func scalar(text string) *yaml.Node {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || len(document.Content) == 0 {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	}
	return document.Content[0]
}
