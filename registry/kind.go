package registry

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gopkg.in/yaml.v3"
)

// kind is a kind of value that a setting can have.
type kind[T any] struct {
	want  string                        // what a user is to write: "a duration from 1ms to 24h"
	read  func(n *yaml.Node) (T, error) // the error says what is wrong and what to write
	write func(value T) (inYAML string) // the inverse of read, in the shortest form
	// schema is satisfied by every value that read takes.
	schema schema
}

// check says that a value is not one that read takes from a file.
func (k kind[T]) check(value T) error {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(k.write(value)), &document); err != nil || len(document.Content) == 0 {
		return errors.New("must be " + k.want)
	}
	_, err := k.read(document.Content[0])
	return err
}

// durationForm is what time.ParseDuration takes for a positive one.
const durationForm = `^\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

// duration is a time.Duration within bounds. A number without a unit is an error:
// it would be seconds to some and nanoseconds to others.
func duration(lowest, highest time.Duration) kind[time.Duration] {
	r := durations{lowest, highest}
	want := r.String()
	return kind[time.Duration]{
		want:  want,
		read:  func(n *yaml.Node) (time.Duration, error) { return r.read(n, want) },
		write: formatDuration,

		schema: schema{"type": "string", "pattern": durationForm},
	}
}

// offOrDuration is a duration within bounds, or 0, which turns something off.
func offOrDuration(lowest, highest time.Duration) kind[time.Duration] {
	r := durations{lowest, highest}
	want := "0 for off or " + r.String()
	return kind[time.Duration]{
		want: want,
		read: func(n *yaml.Node) (time.Duration, error) {
			if isZero(n) {
				return 0, nil
			}
			return r.read(n, want)
		},
		write: func(d time.Duration) string {
			if d == 0 {
				return "0"
			}
			return formatDuration(d)
		},
		schema: schema{"anyOf": []schema{
			{"const": 0},
			{"type": "string", "pattern": durationForm},
			{"type": "string", "pattern": `^[-+]?[0smhunµμ.]+$`},
		}},
	}
}

// isZero says whether a value is 0, with a unit or without: nothing is nothing in
// every unit.
func isZero(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!str" {
		return false
	}
	d, err := time.ParseDuration(n.Value)
	return err == nil && d == 0 && !strings.ContainsAny(n.Value, "123456789") // 0.1ns is rounded
}

// durations is a range of them, both ends included.
type durations struct{ lowest, highest time.Duration }

// String is "a duration from 1ms to 24h".
func (r durations) String() string {
	return fmt.Sprintf("a duration from %s to %s", formatDuration(r.lowest), formatDuration(r.highest))
}

// parse returns the duration that a string is, if it is in the range.
func (r durations) parse(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= r.lowest && d <= r.highest
}

// read returns the duration that a value is; want is what a user is to write.
func (r durations) read(n *yaml.Node, want string) (time.Duration, error) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		if d, ok := r.parse(n.Value); ok {
			return d, nil
		}
	}
	err := mistyped(n, want)
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return 0, err
	}
	if _, ok := r.parse(n.Value + "s"); ok {
		return 0, fmt.Errorf("%w: write %ss", err, n.Value)
	}
	if _, parseErr := time.ParseDuration(n.Value); parseErr != nil {
		return 0, fmt.Errorf("%w: write it like 500ms, 30s or 1h30m", err)
	}
	return 0, err
}

// formatDuration writes 2m where Duration.String writes 2m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if short, ok := strings.CutSuffix(s, "m0s"); ok {
		s = short + "m"
	}
	if short, ok := strings.CutSuffix(s, "h0m"); ok {
		s = short + "h"
	}
	return s
}

// integer is a decimal number within bounds. Forms that YAML versions read
// differently (010, 0x10, 1_000) are errors.
func integer(lowest, highest int) kind[int] {
	k := kind[int]{
		want:  fmt.Sprintf("a whole number from %d to %d", lowest, highest),
		write: strconv.Itoa,

		schema: schema{"type": "integer", "minimum": lowest, "maximum": highest},
	}
	valid := func(s string) (int, bool) {
		i, err := strconv.Atoi(s)
		return i, err == nil && strconv.Itoa(i) == s && i >= lowest && i <= highest
	}
	k.read = func(n *yaml.Node) (int, error) {
		if n.Kind != yaml.ScalarNode {
			return 0, mistyped(n, k.want)
		}
		i, ok := valid(n.Value)
		switch {
		case ok && n.ShortTag() == "!!int":
			return i, nil
		case ok:
			return 0, fmt.Errorf("%w: write %d, without quotes", mistyped(n, k.want), i)
		}
		return 0, mistyped(n, k.want)
	}
	return k
}

// boolean is true or false, and not what YAML 1.1 took for that.
func boolean() kind[bool] {
	k := kind[bool]{want: "true or false", write: strconv.FormatBool, schema: schema{"type": "boolean"}}
	k.read = func(n *yaml.Node) (bool, error) {
		if n.Kind != yaml.ScalarNode {
			return false, mistyped(n, k.want)
		}
		value := strings.ToLower(n.Value)
		is := value == "true" || value == "false"
		switch {
		case is && n.ShortTag() == "!!bool":
			return value == "true", nil
		case is:
			return false, fmt.Errorf("%w: write %s, without quotes", mistyped(n, k.want), value)
		}
		return false, mistyped(n, k.want)
	}
	return k
}

// word is a string of at most a number of bytes without spaces; it may be empty.
func word(maxBytes int) kind[string] {
	k := kind[string]{
		want:  fmt.Sprintf("a string without spaces of at most %d bytes", maxBytes),
		write: strconv.Quote,

		schema: schema{"type": "string", "maxLength": maxBytes, "pattern": `^\S*$`},
	}
	k.read = func(n *yaml.Node) (string, error) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || len(n.Value) > maxBytes ||
			strings.ContainsFunc(n.Value, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
			return "", mistyped(n, k.want)
		}
		return n.Value, nil
	}
	return k
}

// oneOf is one of a few words.
func oneOf[T ~string](first, second T, more ...T) kind[T] {
	words := append([]T{first, second}, more...)
	plain := make([]string, len(words))
	for i, word := range words {
		plain[i] = string(word)
	}
	last := len(plain) - 1
	want := strings.Join(plain[:last], ", ") + " or " + plain[last]
	k := kind[T]{want: want, write: func(value T) string { return string(value) }, schema: schema{"enum": plain}}
	k.read = func(n *yaml.Node) (T, error) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			return "", mistyped(n, want)
		}
		if slices.Contains(plain, n.Value) {
			return T(n.Value), nil
		}
		if near, ok := nearest(n.Value, plain); ok {
			return "", fmt.Errorf("%w: did you mean %s?", mistyped(n, want), near)
		}
		return "", mistyped(n, want)
	}
	return k
}

// mistyped says that a value is not what it must be.
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

// describe says what a user wrote. It is not for null and aliases.
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
