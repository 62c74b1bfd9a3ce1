package registry

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Change is what a user wants of one key in the entry of a driver.
type Change struct {
	Key    string // "retry.max" for max under retry
	Value  string
	Remove bool // the key is to go, and Value has no meaning
}

// keyPattern matches a key as a Change names it, also an unknown one, which a user may want to remove.
var keyPattern = regexp.MustCompile(`^[\w-]+(\.[\w-]+)*$`)

// Keys returns the keys that the entry of a driver can have, as a Change names them, without its name.
func Keys() []string {
	_, keys := driverMapping.keys()
	return slices.DeleteFunc(keys, func(key string) bool { return key == "name" })
}

// ParseChange reads KEY=VALUE or KEY-.
func ParseChange(text string) (Change, error) {
	if key, value, set := strings.Cut(text, "="); set && keyPattern.MatchString(key) && !strings.ContainsAny(value, "\r\n") {
		return Change{Key: key, Value: value}, nil
	}
	if key, removed := strings.CutSuffix(text, "-"); removed && keyPattern.MatchString(key) {
		return Change{Key: key, Remove: true}, nil
	}
	return Change{}, fmt.Errorf("%s is no change of a setting: write KEY=VALUE on one line, or KEY- to remove the key", quote(text))
}

// ChangeDriver returns a drivers.yaml with changes in the entry of one driver. If it has none, the entry is added. All other
// lines stay as they are, and so do the comments, but for those inside a key that is removed. A file in whose form that is
// not possible is refused. Only the result is checked, as Parse does, so that a wrong entry can be mended. ChangeDriver fails
// with Errors if the result is wrong. Mistakes that other entries had before are left, and returned: each entry can be mended
// by itself.
func ChangeDriver(file string, data []byte, driver string, changes []Change) (changed []byte, left Errors, err error) {
	text, form, err := plainLines(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, c := range changes {
		if !utf8.ValidString(driver + c.Value) {
			return nil, nil, fmt.Errorf("the driver %q or the value %q of %s is not in UTF-8", driver, c.Value, c.Key)
		}
		e, err := newEditor(file, text)
		if err != nil {
			return nil, nil, err
		}
		next, err := e.apply(driver, c)
		if err == nil {
			err = checkKept(text, next, driver, c)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: driver %s: %w", file, driver, err)
		}
		text = next
	}
	changed = form.in(text)
	left, own := mistakes(file, changed, driver)
	if before, _ := mistakes(file, data, driver); len(own) > 0 || len(left) > len(before) {
		return nil, nil, slices.Concat(own, left)
	}
	return changed, left, nil
}

// mistakes returns what is wrong in the entries of other drivers, and what is wrong besides.
func mistakes(file string, data []byte, driver string) (others, own Errors) {
	_, err := Parse(file, data)
	all, _ := errors.AsType[Errors](err)
	for _, e := range all {
		if e.Driver == "" || e.Driver == driver {
			own = append(own, e)
		} else {
			others = append(others, e)
		}
	}
	return others, own
}

// isEntryOf reports whether a node is the entry of a driver.
func isEntryOf(n *yaml.Node, driver string) bool {
	name := valueAt(n, "name")
	return name != nil && name.Value == driver
}
