package registry

import (
	"errors"
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"
)

// valueType is a type of value that a setting can have.
type valueType[T any] struct {
	want  string   // what a user is to write: "a duration from 1ms to 24h"
	tags  []string // the types of YAML that it can have; strings if there are none
	parse func(text string) (T, bool)
	// readNode is read for a value that is no scalar; nil for scalars. parse, tags and hint are not used then.
	readNode func(n *yaml.Node) (T, error)
	hint     func(text string) string // what to write instead of a text, "" if unknown; may be nil
	write    func(value T) (inYAML string)
	// schema is satisfied by every value that read takes.
	schema schema
}

// read returns the value of a node. The error says what is wrong and what to write.
func (v valueType[T]) read(n *yaml.Node) (T, error) {
	if v.readNode != nil {
		return v.readNode(n)
	}
	value, ok := v.parse(n.Value)
	ok = ok && n.Kind == yaml.ScalarNode
	var none T
	err := mistyped(n, v.want)
	switch {
	case ok && (isString(n) && v.tags == nil || slices.Contains(v.tags, n.ShortTag())):
		return value, nil
	case ok && isString(n):
		return none, fmt.Errorf("%w: write %s, without quotes", err, v.write(value))
	case n.Kind != yaml.ScalarNode || isNull(n) || v.hint == nil:
		return none, err
	}
	if hint := v.hint(n.Value); hint != "" {
		return none, fmt.Errorf("%w: %s", err, hint)
	}
	return none, err
}

// check returns an error for a value that read does not take from a file.
func (v valueType[T]) check(value T) error {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(v.write(value)), &document); err != nil || len(document.Content) == 0 {
		return errors.New("must be " + v.want)
	}
	_, err := v.read(document.Content[0])
	return err
}

// mistyped returns the error of a value that is not what it must be.
func mistyped(n *yaml.Node, want string) error {
	switch {
	case isNull(n):
		return errors.New("has no value: write " + want)
	case n.Kind == yaml.AliasNode:
		return errors.New("is an alias, and aliases are not supported: write the value out")
	}
	return fmt.Errorf("must be %s, not %s", want, describe(n))
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func isString(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
}

// describe names what a user wrote. It is not for null and aliases.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return "the string " + quote(n.Value)
	case "!!int", "!!float":
		return "the number " + clip(n.Value)
	case "!!bool":
		return "the boolean " + clip(n.Value)
	}
	return quote(n.Value) + " of type " + clip(n.ShortTag())
}
