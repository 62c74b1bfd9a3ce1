package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

// SecretPatterns is a list of patterns for Secrets, NAMESPACE/NAME or NAMESPACE/*, in order and with commas between them:
// Settings must be comparable.
type SecretPatterns string

// newSecretPatterns returns the patterns of lists together.
func newSecretPatterns(patterns []string) SecretPatterns {
	slices.Sort(patterns)
	return SecretPatterns(strings.Join(slices.Compact(patterns), ","))
}

// All returns the patterns.
func (p SecretPatterns) All() []string {
	if p == "" {
		return nil
	}
	return strings.Split(string(p), ",")
}

// match reports whether one of the patterns is for a Secret.
func (p SecretPatterns) match(namespace, name string) bool {
	for pattern := range strings.SplitSeq(string(p), ",") {
		if pattern == namespace+"/"+name || pattern == namespace+"/*" {
			return true
		}
	}
	return false
}

// CheckSecret returns an error if volumes of the driver may not name a Secret: it is not in the driver's list or, for a driver
// without one, in the list of another driver.
func (d Driver) CheckSecret(namespace, name string) error {
	if d.Secrets.match(namespace, name) || d.Secrets == "" && !d.Listed.match(namespace, name) {
		return nil
	}
	where, why := "its entry in drivers.yaml", "it is not in the driver's list"
	if strings.HasPrefix(d.Source, csiDriverOrigin) {
		where = "defaults in drivers.yaml, or give the driver an entry"
	}
	if d.Secrets == "" {
		why = "it is in the list of another driver"
	}
	return fmt.Errorf("volumes of driver %s may not name it, %s: if they should, add %s/%s to secrets of %s", d.Name, why, namespace, name, where)
}

const wantSecrets = "a list of NAMESPACE/NAME or NAMESPACE/*"

// secretPatterns is a list of patterns for Secrets.
func secretPatterns() valueType[SecretPatterns] {
	return valueType[SecretPatterns]{
		want: wantSecrets,
		readNode: func(n *yaml.Node) (SecretPatterns, error) {
			if n.Kind != yaml.SequenceNode {
				return "", mistyped(n, wantSecrets)
			}
			all, problems := checkedStrings(n, checkSecretPattern)
			if problems != nil {
				return "", problems
			}
			return newSecretPatterns(all), nil
		},
		write:  func(p SecretPatterns) string { return "[" + strings.Join(p.All(), ", ") + "]" },
		schema: distinct("", pattern("NAMESPACE/NAME or NAMESPACE/*", `^[a-z0-9]([-a-z0-9]*[a-z0-9])?/(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$`)),
	}
}

// checkSecretPattern returns an error for a bad pattern for Secrets.
func checkSecretPattern(s string) error {
	namespace, name, found := strings.Cut(s, "/")
	switch {
	case !found:
		return fmt.Errorf("%s has no namespace: write NAMESPACE/NAME, or NAMESPACE/* for all Secrets of a namespace", quote(s))
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return fmt.Errorf("%s is not the name of a namespace: write NAMESPACE/NAME or NAMESPACE/*", quote(namespace))
	case name != "*" && len(validation.IsDNS1123Subdomain(name)) > 0:
		return fmt.Errorf("%s is not the name of a Secret: write NAMESPACE/NAME, or NAMESPACE/* for all Secrets of a namespace", quote(name))
	}
	return nil
}

// elementErrors are what is wrong with elements of a list.
type elementErrors []elementError

type elementError struct {
	index, line int
	err         error
}

func (all elementErrors) Error() string {
	errs := make([]error, len(all))
	for i, e := range all {
		errs[i] = e.err
	}
	return errors.Join(errs...).Error()
}

// checkedStrings returns the elements of a list of different strings that pass a check. The error is nil or elementErrors.
func checkedStrings(n *yaml.Node, check func(string) error) ([]string, error) {
	var list []string
	var problems elementErrors
	for i, element := range n.Content {
		var err error
		switch {
		case !isString(element):
			err = mistyped(element, "a string")
		case slices.Contains(list, element.Value):
			err = fmt.Errorf("%s is listed twice: remove one of them", quote(element.Value))
		default:
			err = check(element.Value)
		}
		if err != nil {
			problems = append(problems, elementError{i, element.Line, err})
		} else {
			list = append(list, element.Value)
		}
	}
	if problems != nil {
		return list, problems
	}
	return list, nil
}

// reportValue reports what is wrong with a value, or with elements of it.
func (p *parser) reportValue(n *yaml.Node, path string, err error) {
	if elements, ok := errors.AsType[elementErrors](err); ok {
		for _, e := range elements {
			p.report(e.line, fmt.Sprintf("%s[%d]", path, e.index), e.err.Error())
		}
	} else if err != nil {
		p.report(n.Line, path, err.Error())
	}
}
