package registry

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gopkg.in/yaml.v3"
)

// valueType is a type of value that a key of drivers.yaml can have.
type valueType[T any] struct {
	want string   // what a user is to write: "a duration from 1ms to 24h"
	tags []string // the types of YAML that it can have; strings if there are none
	// parse fails with a hint if the text is not what is wanted, or with all that there is to say.
	parse func(text string) (T, error)
	write func(value T) (inYAML string) // of a setting
	// readNode is read for a value that is no scalar, and takes the place of parse and tags.
	readNode func(p *parser, n *yaml.Node, path string) (T, bool)
	schema   schema // is satisfied by every value that read takes
}

// hint is what to write instead of a text that is not what is wanted; "" if that is not known.
type hint string

func (h hint) Error() string { return string(h) }

// unless is nil if a text is what is wanted.
func unless(ok bool) error {
	if ok {
		return nil
	}
	return hint("")
}

// read returns the value of a node. If it returns false, what is wrong and what to write was reported.
func (k valueType[T]) read(p *parser, n *yaml.Node, path string) (T, bool) {
	if k.readNode != nil {
		return k.readNode(p, n, path)
	}
	value, problem := k.parse(n.Value)
	scalar, typed := n.Kind == yaml.ScalarNode && !isNull(n), isString(n) && k.tags == nil || slices.Contains(k.tags, n.ShortTag())
	if scalar && typed && problem == nil {
		return value, true
	}
	err := mistyped(n, k.want)
	instead, isHint := errors.AsType[hint](problem)
	switch {
	case !scalar:
	case problem == nil && isString(n):
		err = fmt.Errorf("%w: write %s, without quotes", err, k.write(value))
	case typed && problem != nil && !isHint:
		err = problem
	case instead != "":
		err = fmt.Errorf("%w: %w", err, instead)
	}
	p.report(n.Line, path, err.Error())
	return value, false
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

// nouns are the types of YAML, as people call them.
var nouns = map[string]string{"!!str": "the string ", "!!int": "the number ", "!!float": "the number ", "!!bool": "the boolean "}

// describe names what a user wrote. It is not for null and aliases.
func describe(n *yaml.Node) string {
	noun := nouns[n.ShortTag()]
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case noun == "":
		return quote(n.Value) + " of type " + clip(n.ShortTag())
	case isString(n):
		return noun + quote(n.Value)
	}
	return noun + clip(n.Value)
}

// text is a string that passes a check.
func text[T ~string](want string, check func(string) error, s schema) valueType[T] {
	return valueType[T]{
		want: want, schema: s,
		parse: func(s string) (T, error) { return T(s), check(s) },
		write: func(value T) string { return strconv.Quote(string(value)) },
	}
}

// list is a list of different strings that pass a check, as a value that is made of them.
func list[T any](want string, check func(string) error, s schema, of func([]string) T) valueType[T] {
	s = listOf(s)
	s["uniqueItems"] = true
	return valueType[T]{want: want, schema: s, readNode: func(p *parser, n *yaml.Node, path string) (value T, ok bool) {
		if n.Kind != yaml.SequenceNode {
			p.report(n.Line, path, mistyped(n, want).Error())
			return value, false
		}
		var all []string
		before := len(p.errors)
		for i, element := range n.Content {
			var err error
			switch {
			case !isString(element):
				err = mistyped(element, "a string")
			case slices.Contains(all, element.Value):
				err = fmt.Errorf("%s is listed twice: remove one of them", quote(element.Value))
			default:
				err = check(element.Value)
			}
			if err != nil {
				p.report(element.Line, fmt.Sprintf("%s[%d]", path, i), err.Error())
				continue
			}
			all = append(all, element.Value)
		}
		if len(p.errors) > before {
			return value, false
		}
		return of(all), true
	}}
}

// durationForm is what time.ParseDuration takes for a positive one.
const durationForm = `^\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

// duration is a time.Duration within bounds, both included. A number without a unit is an
// error: it would be seconds to some and nanoseconds to others.
func duration(lowest, highest time.Duration) valueType[time.Duration] {
	return valueType[time.Duration]{
		want: fmt.Sprintf("a duration from %s to %s", FormatDuration(lowest), FormatDuration(highest)),
		parse: func(s string) (time.Duration, error) {
			within := func(d time.Duration, err error) bool { return err == nil && d >= lowest && d <= highest }
			d, err := time.ParseDuration(s)
			switch {
			case within(d, err):
				return d, nil
			case within(time.ParseDuration(s + "s")):
				return 0, hint("write " + s + "s")
			case err != nil:
				return 0, hint("write it like 500ms, 30s or 1h30m")
			}
			return 0, hint("")
		},
		write:  FormatDuration,
		schema: pattern(durationForm),
	}
}

// offOrDuration is a duration within bounds, or 0, with a unit or without, which turns
// something off.
func offOrDuration(lowest, highest time.Duration) valueType[time.Duration] {
	k := duration(lowest, highest)
	positive := k.parse
	k.want = "0 for off or " + k.want
	k.tags = []string{"!!int", "!!str"}
	k.parse = func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err == nil && d == 0 && !strings.ContainsAny(s, "123456789") { // 0.1ns is rounded
			return 0, nil
		}
		return positive(s)
	}
	k.schema = schema{"anyOf": []schema{{"const": 0}, pattern(durationForm), pattern(`^[-+]?[0smhunµμ.]+$`)}}
	return k
}

// zeroUnits are the units at the end of a duration that add nothing.
var zeroUnits = regexp.MustCompile(`([hm])0[ms](0s)?$`)

// FormatDuration writes 2m where Duration.String writes 2m0s, and 0 for 0s.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return zeroUnits.ReplaceAllString(d.String(), "$1")
}

// integer is a decimal number within bounds. Forms that YAML versions read
// differently (010, 0x10, 1_000) are errors.
func integer(lowest, highest int) valueType[int] {
	return valueType[int]{
		want: fmt.Sprintf("a whole number from %d to %d", lowest, highest),
		tags: []string{"!!int"},
		parse: func(s string) (int, error) {
			i, err := strconv.Atoi(s)
			return i, unless(err == nil && strconv.Itoa(i) == s && i >= lowest && i <= highest)
		},
		write:  strconv.Itoa,
		schema: schema{"type": "integer", "minimum": lowest, "maximum": highest},
	}
}

// numberForm is a decimal number as everybody reads it. Other forms (010, 1e3, .inf)
// are errors.
var numberForm = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// offOrNumber is a decimal number within bounds, or 0, which turns something off.
func offOrNumber(lowest, highest float64) valueType[float64] {
	format := func(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }
	return valueType[float64]{
		want: fmt.Sprintf("0 for no limit or a number from %s to %s", format(lowest), format(highest)),
		tags: []string{"!!int", "!!float"},
		parse: func(s string) (float64, error) {
			number, err := strconv.ParseFloat(s, 64)
			return number, unless(err == nil && numberForm.MatchString(s) && (number == 0 || number >= lowest && number <= highest))
		},
		write:  format,
		schema: schema{"type": "number", "minimum": 0, "maximum": highest},
	}
}

// boolean is true or false. Other booleans of YAML 1.1 (yes, on) are errors.
func boolean() valueType[bool] {
	return valueType[bool]{
		want: "true or false",
		tags: []string{"!!bool"},
		parse: func(s string) (bool, error) {
			s = strings.ToLower(s)
			return s == "true", unless(s == "true" || s == "false")
		},
		write:  strconv.FormatBool,
		schema: schema{"type": "boolean"},
	}
}

// word is a string of at most a number of bytes without spaces; it may be empty.
func word(maxBytes int) valueType[string] {
	bad := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	return text[string](fmt.Sprintf("a string without spaces of at most %d bytes", maxBytes),
		func(s string) error { return unless(len(s) <= maxBytes && !strings.ContainsFunc(s, bad)) },
		schema{"type": "string", "maxLength": maxBytes, "pattern": `^\S*$`})
}

// The rules of Kubernetes for the names of objects, as JSON Schema needs them.
const (
	labelForm     = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	subdomainForm = labelForm + `(\.` + labelForm + `)*`
)

// objectName is the name of a Kubernetes object, or "".
func objectName(noun string, problems func(string) []string, maxLength int, form string) valueType[string] {
	return text[string](fmt.Sprintf(`"" or a DNS %s, at most %d characters)`, noun, maxLength),
		func(s string) error { return unless(s == "" || len(problems(s)) == 0) },
		schema{"type": "string", "maxLength": maxLength, "pattern": "^$|^" + form + "$"})
}

// oneOf is one of at least two words.
func oneOf[T ~string](words ...T) valueType[T] {
	plain := make([]string, len(words))
	for i, word := range words {
		plain[i] = string(word)
	}
	last := len(plain) - 1
	k := text[T](strings.Join(plain[:last], ", ")+" or "+plain[last], func(s string) error {
		near, ok := nearest(s, plain)
		switch {
		case slices.Contains(plain, s):
			return nil
		case ok:
			return hint("did you mean " + near + "?")
		}
		return hint("")
	}, schema{"enum": plain})
	k.write = func(value T) string { return string(value) }
	return k
}
