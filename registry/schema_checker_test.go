package registry

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// checker knows the part of JSON Schema that Schema uses, and fails at any other.
type checker struct {
	t        *testing.T
	problems []string
}

func (c *checker) report(path, format string, args ...any) {
	c.problems = append(c.problems, path+": "+fmt.Sprintf(format, args...))
}

func (c *checker) check(s map[string]any, value any, path string) {
	if want, ok := s["type"]; ok && !isType(want.(string), value) {
		c.report(path, "%v is no %s", value, want)
		return
	}
	for keyword, argument := range s {
		switch keyword {
		case "type", "description", "title", "$schema":
		case "const":
			if !cmp.Equal(argument, value) {
				c.report(path, "is not %v", argument)
			}
		case "enum":
			if !slices.ContainsFunc(argument.([]any), func(one any) bool { return cmp.Equal(one, value) }) {
				c.report(path, "is none of %v", argument)
			}
		case "pattern":
			if !regexp.MustCompile(argument.(string)).MatchString(value.(string)) {
				c.report(path, "%q does not match %s", value, argument)
			}
		case "maxLength":
			if utf8.RuneCountInString(value.(string)) > int(argument.(float64)) {
				c.report(path, "is too long")
			}
		case "minimum":
			if value.(float64) < argument.(float64) {
				c.report(path, "is below %v", argument)
			}
		case "maximum":
			if value.(float64) > argument.(float64) {
				c.report(path, "is above %v", argument)
			}
		case "anyOf":
			c.anyOf(argument.([]any), value, path)
		case "items":
			for i, element := range value.([]any) {
				c.check(argument.(map[string]any), element, fmt.Sprintf("%s[%d]", path, i))
			}
		case "uniqueItems":
			for i, element := range value.([]any) {
				if slices.ContainsFunc(value.([]any)[:i], func(earlier any) bool { return cmp.Equal(earlier, element) }) {
					c.report(path, "has %v twice", element)
				}
			}
		case "required":
			for _, key := range argument.([]any) {
				if _, ok := value.(map[string]any)[key.(string)]; !ok {
					c.report(join(path, key.(string)), "is missing")
				}
			}
		case "properties", "additionalProperties":
			if keyword == "properties" {
				c.properties(argument.(map[string]any), value.(map[string]any), path)
			}
		default:
			c.t.Errorf("this test does not know the keyword %s", keyword)
		}
	}
}

func (c *checker) anyOf(schemas []any, value any, path string) {
	for _, s := range schemas {
		one := &checker{t: c.t}
		if one.check(s.(map[string]any), value, path); len(one.problems) == 0 {
			return
		}
	}
	c.report(path, "%v is none of what it can be", value)
}

func (c *checker) properties(known map[string]any, value map[string]any, path string) {
	for key, v := range value {
		if s, ok := known[key]; ok {
			c.check(s.(map[string]any), v, join(path, key))
		} else {
			c.report(join(path, key), "is unknown")
		}
	}
}

func join(path, key string) string {
	return strings.TrimPrefix(path+"."+key, ".")
}

func isType(want string, value any) bool {
	switch v := value.(type) {
	case string:
		return want == "string"
	case bool:
		return want == "boolean"
	case float64:
		return want == "number" || want == "integer" && v == float64(int64(v))
	case []any:
		return want == "array"
	case map[string]any:
		return want == "object"
	}
	return false
}
