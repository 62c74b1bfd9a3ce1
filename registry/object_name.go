package registry

import (
	"fmt"
	"regexp"
	"strconv"

	"gopkg.in/yaml.v3"
)

// nameRule is a rule of Kubernetes for the names of objects.
type nameRule struct {
	noun      string
	form      *regexp.Regexp
	maxLength int
}

var (
	dnsLabel     = nameRule{"label", regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`), 63}
	dnsSubdomain = nameRule{"subdomain", regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`), 253}
)

// objectName is the name of a Kubernetes object, or "" for what holds without one.
func objectName(rule nameRule) kind[string] {
	dot := ""
	if rule == dnsSubdomain {
		dot = " and '.'"
	}
	k := kind[string]{
		want:  fmt.Sprintf(`"" or a DNS %s (small letters, digits, '-'%s, at most %d characters)`, rule.noun, dot, rule.maxLength),
		write: strconv.Quote,

		schema: schema{"type": "string", "maxLength": rule.maxLength, "pattern": "^$|" + rule.form.String()},
	}
	k.read = func(n *yaml.Node) (string, error) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || len(n.Value) > rule.maxLength || n.Value != "" && !rule.form.MatchString(n.Value) {
			return "", mistyped(n, k.want)
		}
		return n.Value, nil
	}
	return k
}
