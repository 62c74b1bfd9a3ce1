package registry

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// durationForm is what time.ParseDuration takes for a positive one.
const durationForm = `^\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

// duration is a time.Duration within bounds, both included. A number without a unit is an
// error: it would be seconds to some and nanoseconds to others.
func duration(lowest, highest time.Duration) valueType[time.Duration] {
	parse := func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= lowest && d <= highest
	}
	return valueType[time.Duration]{
		want:  fmt.Sprintf("a duration from %s to %s", formatDuration(lowest), formatDuration(highest)),
		parse: parse,
		hint: func(s string) string {
			if _, ok := parse(s + "s"); ok {
				return "write " + s + "s"
			}
			if _, err := time.ParseDuration(s); err != nil {
				return "write it like 500ms, 30s or 1h30m"
			}
			return ""
		},
		write:  formatDuration,
		schema: schema{"type": "string", "pattern": durationForm},
	}
}

// offOrDuration is a duration within bounds, or 0, with a unit or without, which turns
// something off.
func offOrDuration(lowest, highest time.Duration) valueType[time.Duration] {
	v := duration(lowest, highest)
	positive := v.parse
	v.want = "0 for off or " + v.want
	v.tags = []string{"!!int", "!!str"}
	v.parse = func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		if err == nil && d == 0 && !strings.ContainsAny(s, "123456789") { // 0.1ns is rounded
			return 0, true
		}
		return positive(s)
	}
	v.write = func(d time.Duration) string {
		if d == 0 {
			return "0"
		}
		return formatDuration(d)
	}
	v.schema = schema{"anyOf": []schema{
		{"const": 0},
		{"type": "string", "pattern": durationForm},
		{"type": "string", "pattern": `^[-+]?[0smhunµμ.]+$`},
	}}
	return v
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
func integer(lowest, highest int) valueType[int] {
	return valueType[int]{
		want: fmt.Sprintf("a whole number from %d to %d", lowest, highest),
		tags: []string{"!!int"},
		parse: func(s string) (int, bool) {
			i, err := strconv.Atoi(s)
			return i, err == nil && strconv.Itoa(i) == s && i >= lowest && i <= highest
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
	return valueType[float64]{
		want: fmt.Sprintf("0 for no limit or a number from %s to %s", formatNumber(lowest), formatNumber(highest)),
		tags: []string{"!!int", "!!float"},
		parse: func(s string) (float64, bool) {
			number, err := strconv.ParseFloat(s, 64)
			return number, err == nil && numberForm.MatchString(s) && (number == 0 || number >= lowest && number <= highest)
		},
		write:  formatNumber,
		schema: schema{"type": "number", "minimum": 0, "maximum": highest},
	}
}

func formatNumber(number float64) string {
	return strconv.FormatFloat(number, 'f', -1, 64)
}

// boolean is true or false. Other booleans of YAML 1.1 (yes, on) are errors.
func boolean() valueType[bool] {
	return valueType[bool]{
		want: "true or false",
		tags: []string{"!!bool"},
		parse: func(s string) (bool, bool) {
			s = strings.ToLower(s)
			return s == "true", s == "true" || s == "false"
		},
		write:  strconv.FormatBool,
		schema: schema{"type": "boolean"},
	}
}

// word is a string of at most a number of bytes without spaces; it may be empty.
func word(maxBytes int) valueType[string] {
	return valueType[string]{
		want: fmt.Sprintf("a string without spaces of at most %d bytes", maxBytes),
		parse: func(s string) (string, bool) {
			bad := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
			return s, len(s) <= maxBytes && !strings.ContainsFunc(s, bad)
		},
		write:  strconv.Quote,
		schema: schema{"type": "string", "maxLength": maxBytes, "pattern": `^\S*$`},
	}
}

// The rules of Kubernetes for the names of objects, as JSON Schema needs them.
const (
	labelForm     = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	subdomainForm = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
)

// dnsLabel is the name of a Kubernetes object that is a DNS label, or "".
func dnsLabel() valueType[string] {
	return objectName("label (small letters, digits, '-'", validation.IsDNS1123Label, validation.DNS1123LabelMaxLength, labelForm)
}

// dnsSubdomain is the name of a Kubernetes object that is a DNS subdomain, or "".
func dnsSubdomain() valueType[string] {
	return objectName("subdomain (small letters, digits, '-' and '.'", validation.IsDNS1123Subdomain, validation.DNS1123SubdomainMaxLength, subdomainForm)
}

func objectName(noun string, problems func(string) []string, maxLength int, form string) valueType[string] {
	return valueType[string]{
		want:   fmt.Sprintf(`"" or a DNS %s, at most %d characters)`, noun, maxLength),
		parse:  func(s string) (string, bool) { return s, s == "" || len(problems(s)) == 0 },
		write:  strconv.Quote,
		schema: schema{"type": "string", "maxLength": maxLength, "pattern": "^$|" + form},
	}
}

// oneOf is one of at least two words.
func oneOf[T ~string](words ...T) valueType[T] {
	plain := make([]string, len(words))
	for i, word := range words {
		plain[i] = string(word)
	}
	last := len(plain) - 1
	return valueType[T]{
		want:  strings.Join(plain[:last], ", ") + " or " + plain[last],
		parse: func(s string) (T, bool) { return T(s), slices.Contains(plain, s) },
		hint: func(s string) string {
			if near, ok := Nearest(s, plain); ok {
				return "did you mean " + near + "?"
			}
			return ""
		},
		write:  func(value T) string { return string(value) },
		schema: schema{"enum": plain},
	}
}
