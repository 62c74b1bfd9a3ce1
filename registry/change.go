package registry

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Change is what a user wants of one key in the entry of a driver.
type Change struct {
	Key    string // "retry.max" for max under retry
	Value  string
	Remove bool // the key is to go, and Value has no meaning
}

// Keys returns the keys that the entry of a driver can have, as a Change names them, without its name.
func Keys() []string {
	_, keys := driverMapping.keys()
	return slices.DeleteFunc(keys, func(key string) bool { return key == "name" })
}

// ParseChange reads KEY=VALUE or KEY-.
func ParseChange(text string) (Change, error) {
	if key, value, set := strings.Cut(text, "="); set && key != "" && !strings.ContainsAny(value, "\r\n") {
		return Change{Key: key, Value: value}, nil
	}
	if key, removed := strings.CutSuffix(text, "-"); removed && key != "" && !strings.Contains(key, "=") {
		return Change{Key: key, Remove: true}, nil
	}
	return Change{}, fmt.Errorf("%s is no change of a setting: write KEY=VALUE on one line, or KEY- to remove the key", quote(text))
}

// ChangeDriver returns a drivers.yaml with changes in the entry of one driver. If it has none, the entry is added. All other
// lines stay as they are, with their comments. Only the result is checked, as Parse does, so that a wrong entry can be
// mended. ChangeDriver fails with Errors if the result is wrong. Mistakes that other entries had before are left, and
// returned: each entry can be mended by itself.
func ChangeDriver(file string, data []byte, driver string, changes []Change) (changed []byte, left Errors, err error) {
	text := data
	for _, c := range changes {
		e, err := newEditor(file, text)
		if err != nil {
			return nil, nil, err
		}
		if text, err = e.apply(driver, c); err != nil {
			return nil, nil, fmt.Errorf("%s: driver %s: %w", file, driver, err)
		}
	}
	left, own := mistakes(file, text, driver)
	if before, _ := mistakes(file, data, driver); len(own) > 0 || len(left) > len(before) {
		return nil, nil, slices.Concat(own, left)
	}
	if others(data, driver) != others(text, driver) {
		return nil, nil, fmt.Errorf("%s: driver %s: the form of the entry is not supported: change it with an editor", file, driver)
	}
	return text, left, nil
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

// others returns the content of a file without the entry of a driver and without comments.
func others(data []byte, driver string) string {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil || len(document.Content) == 0 {
		return ""
	}
	root := withoutComments(document.Content[0])
	for i := 1; i < len(root.Content); i += 2 {
		if root.Content[i-1].Value != "drivers" {
			continue
		}
		list := root.Content[i]
		list.Content = slices.DeleteFunc(list.Content, func(n *yaml.Node) bool { return isEntryOf(n, driver) })
		if len(list.Content) == 0 {
			root.Content = slices.Delete(root.Content, i-1, i+1)
		}
	}
	return flow(root)
}

// isEntryOf reports whether a node is the entry of a driver.
func isEntryOf(n *yaml.Node, driver string) bool {
	name := valueAt(n, "name")
	return name != nil && name.Value == driver
}

// editor changes one key of a drivers.yaml, by lines.
type editor struct {
	lines []string // without line feeds
	root  *yaml.Node
}

func newEditor(file string, data []byte) (*editor, error) {
	p := newParser(file)
	root := p.document(data)
	if root == nil || len(p.errors) > 0 {
		return nil, p.errors
	}
	if root.Kind != yaml.MappingNode {
		return nil, Errors{{File: file, Line: root.Line, Message: mistyped(root, "a mapping of keys to values").Error()}}
	}
	return &editor{lines: strings.Split(string(bytes.TrimSuffix(data, []byte("\n"))), "\n"), root: root}, nil
}

// apply returns the text with a change.
func (e *editor) apply(driver string, c Change) ([]byte, error) {
	list := valueAt(e.root, "drivers")
	if list != nil && list.Kind != yaml.SequenceNode && !isNull(list) {
		return nil, errors.New("drivers is not a list: correct it with an editor")
	}
	i := -1
	if list != nil {
		i = slices.IndexFunc(list.Content, func(n *yaml.Node) bool { return isEntryOf(n, driver) })
	}
	switch {
	case i < 0 && c.Remove:
		return nil, errors.New("the file has no entry for it")
	case i < 0:
		return e.added(list, driver, c)
	}
	limit := e.endOf(e.root, slices.IndexFunc(e.root.Content, func(n *yaml.Node) bool { return n == list })-1, len(e.lines)+1)
	if i+1 < len(list.Content) {
		limit = list.Content[i+1].Line
	}
	e.change(list.Content[i], e.trimmed(list.Content[i].Line, limit), strings.SplitN(c.Key, ".", 2), c)
	return e.text(), nil
}

func (e *editor) text() []byte { return []byte(strings.Join(e.lines, "\n") + "\n") }

// added returns the text with an entry for a driver with one key.
func (e *editor) added(list *yaml.Node, driver string, c Change) ([]byte, error) {
	if list != nil && list.Style&yaml.FlowStyle != 0 && len(list.Content) > 0 {
		return nil, errors.New("drivers is a list in brackets: write each entry on lines of its own, or add the entry with an editor")
	}
	at, indent := len(e.lines)+1, "  "
	switch i := slices.IndexFunc(e.root.Content, func(n *yaml.Node) bool { return n == list }); {
	case list == nil:
		e.insert(at, "drivers:")
		at++
	case len(list.Content) == 0:
		key := e.root.Content[i-1]
		e.lines[key.Line-1] = "drivers:" + e.comment(key, list)
		at = key.Line + 1
	default:
		at, indent = e.trimmed(key(e.root, i).Line, e.endOf(e.root, i-1, at)), strings.Repeat(" ", list.Column-1)
	}
	e.insert(at, indent+"- name: "+written("name", driver))
	e.insertKey(at+1, indent+"  ", strings.SplitN(c.Key, ".", 2), written(c.Key, c.Value))
	return e.text(), nil
}

// key returns the key of the value at an index of a mapping's Content.
func key(m *yaml.Node, value int) *yaml.Node { return m.Content[value-1] }

// change changes one key of a mapping, whose lines end before limit.
func (e *editor) change(m *yaml.Node, limit int, keys []string, c Change) {
	if m.Style&yaml.FlowStyle != 0 {
		changeFlow(m, keys, c)
		e.replace(m.Line, m.Column, limit, flow(m)+e.comment(m, m))
		return
	}
	var at []int // of the key in m.Content, more than one if it is there twice
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == keys[0] {
			at = append(at, i)
		}
	}
	for _, i := range slices.Backward(at[min(1, len(at)):]) {
		e.remove(m, i, limit)
	}
	if len(at) == 0 {
		if !c.Remove {
			e.insertKey(limit, strings.Repeat(" ", m.Content[0].Column-1), keys, written(c.Key, c.Value))
		}
		return
	}
	first := at[0]
	k, v := m.Content[first], m.Content[first+1]
	group := len(keys) > 1 && v.Kind == yaml.MappingNode && len(v.Content) > 0
	switch {
	case group && !(c.Remove && len(v.Content) == 2 && v.Content[0].Value == keys[1]):
		e.change(v, e.endOf(m, first, limit), keys[1:], c)
	case c.Remove && len(keys) > 1 && !group: // the key is not there
	case c.Remove:
		e.remove(m, first, limit)
	case len(keys) > 1:
		end := e.endOf(m, first, limit)
		e.replace(k.Line, k.Column, end, keys[0]+":"+e.comment(k, v))
		e.insert(k.Line+1, strings.Repeat(" ", k.Column+1)+keys[1]+": "+written(c.Key, c.Value))
	default:
		e.replace(k.Line, k.Column, e.endOf(m, first, limit), keys[0]+": "+written(c.Key, c.Value)+e.comment(k, v))
	}
}

// endOf returns the line after the value of the ith key of a block mapping, whose lines end before limit.
func (e *editor) endOf(m *yaml.Node, i, limit int) int {
	if i+2 < len(m.Content) {
		limit = min(limit, m.Content[i+2].Line)
	}
	return e.trimmed(m.Content[i].Line, limit)
}

// trimmed returns limit without the lines before it that belong to what follows: empty ones, comments, the dash of an
// element.
func (e *editor) trimmed(first, limit int) int {
	for limit > first+1 {
		line := strings.TrimSpace(e.lines[limit-2])
		if line != "" && line != "-" && line[0] != '#' {
			break
		}
		limit--
	}
	return limit
}

// replace replaces the text from a position up to the line before end.
func (e *editor) replace(line, column, end int, text string) {
	e.lines[line-1] = string([]rune(e.lines[line-1])[:column-1]) + text
	e.lines = slices.Delete(e.lines, line, end-1)
}

// remove removes the ith key of a block mapping. What is before the first key, as the dash of an element, goes to the next
// one.
func (e *editor) remove(m *yaml.Node, i, limit int) {
	k, end := m.Content[i], e.endOf(m, i, limit)
	if i == 0 && len(m.Content) > 2 {
		next := m.Content[2]
		e.lines[next.Line-1] = string([]rune(e.lines[k.Line-1])[:k.Column-1]) + string([]rune(e.lines[next.Line-1])[next.Column-1:])
	}
	e.lines = slices.Delete(e.lines, k.Line-1, end-1)
}

// insert inserts a line before the line of a number.
func (e *editor) insert(at int, line string) {
	e.lines = slices.Insert(e.lines, min(at-1, len(e.lines)), line)
}

// insertKey inserts the lines of a key.
func (e *editor) insertKey(at int, indent string, keys []string, value string) {
	for i, k := range keys[:len(keys)-1] {
		e.insert(at+i, indent+strings.Repeat("  ", i)+k+":")
	}
	last := len(keys) - 1
	e.insert(at+last, indent+strings.Repeat("  ", last)+keys[last]+": "+value)
}

// comment returns the comment at the end of the line of a key or a value, with the space before it.
func (e *editor) comment(nodes ...*yaml.Node) string {
	for _, n := range nodes {
		line := e.lines[n.Line-1]
		if i := strings.LastIndex(line, n.LineComment); n.LineComment != "" && i > 0 {
			before := strings.TrimRight(line[:i], " \t")
			return line[len(before):]
		}
	}
	return ""
}
