package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// editor changes one key of a drivers.yaml, by lines.
type editor struct {
	lines []string // without line feeds
	root  *yaml.Node
	end   int // the line after the document
}

func newEditor(file, text string) (*editor, error) {
	p := newParser(file)
	root := p.document([]byte(text))
	if root == nil || len(p.errors) > 0 {
		return nil, p.errors
	}
	if root.Kind != yaml.MappingNode {
		return nil, Errors{{File: file, Line: root.Line, Message: mistyped(root, "a mapping of keys to values").Error()}}
	}
	e := &editor{lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n"), root: root}
	e.end = len(e.lines) + 1
	if i := slices.IndexFunc(e.lines[root.Line-1:], endsDocument); i >= 0 {
		e.end = root.Line + i
	}
	return e, nil
}

// endsDocument reports whether a line marks the end of a YAML document.
func endsDocument(line string) bool {
	return line == "..." || strings.HasPrefix(line, "... ") || strings.HasPrefix(line, "...\t")
}

// apply returns the text with a change.
func (e *editor) apply(driver string, c Change) (string, error) {
	if c.Key == "name" {
		return "", errors.New("its name cannot be changed: rename the entry with a text editor")
	}
	list := valueAt(e.root, "drivers")
	if e.root.Style&yaml.FlowStyle != 0 {
		return "", errors.New("the file is a mapping in braces: write each key on a line of its own, or use a text editor")
	}
	if list != nil && list.Kind != yaml.SequenceNode && !isNull(list) {
		return "", errors.New("drivers is not a list: correct it with a text editor")
	}
	if list != nil && list.Style&yaml.FlowStyle != 0 && len(list.Content) > 0 {
		return "", fmt.Errorf("drivers on line %d is a list in brackets: begin a line with \"- \" for each entry, or use a text editor", list.Line)
	}
	i := -1
	if list != nil {
		i = slices.IndexFunc(list.Content, func(n *yaml.Node) bool { return isEntryOf(n, driver) })
	}
	switch {
	case i < 0 && c.Remove:
		return "", errors.New("the file has no entry for it")
	case i < 0:
		return e.added(list, driver, c), nil
	}
	limit := e.endOf(e.root, slices.Index(e.root.Content, list)-1, e.end)
	if i+1 < len(list.Content) {
		limit = list.Content[i+1].Line
		for limit > 1 && !strings.HasPrefix(strings.TrimSpace(e.lines[limit-1]), "-") {
			limit-- // to the dash of the next entry
		}
	}
	if err := e.change(list.Content[i], limit, strings.SplitN(c.Key, ".", 2), c); err != nil {
		return "", err
	}
	return e.text(), nil
}

func (e *editor) text() string { return strings.Join(e.lines, "\n") + "\n" }

// added returns the text with an entry for a driver with one key.
func (e *editor) added(list *yaml.Node, driver string, c Change) string {
	at, indent := e.end, "  "
	switch i := slices.Index(e.root.Content, list); {
	case list == nil:
		e.insert(at, "drivers:")
		at++
	case len(list.Content) == 0:
		key := e.root.Content[i-1]
		e.lines[key.Line-1] = "drivers:" + e.comment(key, list)
		at = key.Line + 1
	default:
		at, indent = e.endOf(e.root, i-1, at), strings.Repeat(" ", list.Column-1)
	}
	e.insert(at, indent+"- name: "+written("name", driver))
	e.insertKey(at+1, indent+"  ", strings.SplitN(c.Key, ".", 2), written(c.Key, c.Value))
	return e.text()
}

// change changes one key of a mapping, whose lines end before limit.
func (e *editor) change(m *yaml.Node, limit int, keys []string, c Change) error {
	if m.Style&yaml.FlowStyle != 0 {
		end := e.trimmed(m.Line, limit, 0)
		changeFlow(m, keys, c)
		return e.replace(m.Line, m.Column, end, flow(m)+e.comment(m))
	}
	var at []int // of the key in m.Content, more than one if it is there twice
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == keys[0] {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		if !c.Remove {
			column := m.Content[0].Column
			e.insertKey(e.trimmed(m.Line, limit, column), strings.Repeat(" ", column-1), keys, written(c.Key, c.Value))
		}
		return nil
	}
	for _, i := range slices.Backward(at[1:]) {
		if err := e.remove(m, i, limit); err != nil {
			return err
		}
	}
	first := at[0]
	k, v := m.Content[first], m.Content[first+1]
	group := len(keys) > 1 && v.Kind == yaml.MappingNode && len(v.Content) > 0
	switch {
	case group && !(c.Remove && len(v.Content) == 2 && v.Content[0].Value == keys[1]):
		return e.change(v, e.endOf(m, first, limit), keys[1:], c)
	case c.Remove && len(keys) > 1 && !group: // the key is not there
		return nil
	case c.Remove:
		return e.remove(m, first, limit)
	}
	if !e.begins(k) {
		return errForm
	}
	end, text := e.endOf(m, first, limit), ": "+written(c.Key, c.Value)
	if v.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && e.trimmed(k.Line, end, 0) == k.Line+1 {
		end = k.Line + 1 // the comments below stay
	}
	if len(keys) > 1 {
		text = ":"
	}
	err := e.replace(k.Line, k.Column, end, keys[0]+text+e.comment(k, v))
	if err == nil && len(keys) > 1 {
		e.insert(k.Line+1, strings.Repeat(" ", k.Column+1)+keys[1]+": "+written(c.Key, c.Value))
	}
	return err
}

// begins reports whether a key begins its line, but for the dash of an element.
func (e *editor) begins(k *yaml.Node) bool {
	line := []rune(e.lines[k.Line-1])
	return k.Column <= len(line) && strings.Trim(string(line[:k.Column-1]), " -") == ""
}

// endOf returns the line after the value of the ith key of a block mapping, whose lines end before limit.
func (e *editor) endOf(m *yaml.Node, i, limit int) int {
	if i+2 < len(m.Content) {
		limit = min(limit, m.Content[i+2].Line)
	}
	return e.trimmed(m.Content[i].Line, limit, m.Content[i].Column)
}

// trimmed returns limit without the lines before it that belong to what follows: empty ones, comments, the dash of an
// element. With a column, a comment that begins behind that belongs to what is before it.
func (e *editor) trimmed(first, limit, column int) int {
	for end := limit; end > first+1; end-- {
		line := strings.TrimLeft(e.lines[end-2], " ")
		switch text := strings.TrimSpace(line); {
		case text == "" || text == "-":
		case text[0] != '#' || column > 0 && len(e.lines[end-2])-len(line) >= column:
			return end
		}
	}
	return min(limit, first+1)
}

// replace replaces the text from a position up to the line before end.
func (e *editor) replace(line, column, end int, text string) error {
	old := []rune(e.lines[line-1])
	if end <= line || column > len(old) {
		return errForm
	}
	if end > line+1 && strings.Contains(string(old[column-1:])+strings.Join(e.lines[line:end-1], ""), "#") {
		return fmt.Errorf("lines %d to %d are one value with a comment inside, which would be lost: change it with a text editor", line, end-1)
	}
	e.lines[line-1] = string(old[:column-1]) + text
	e.lines = slices.Delete(e.lines, line, end-1)
	return nil
}

// remove removes the ith key of a block mapping. What is before the first key, as the dash of an element, goes to the next
// one.
func (e *editor) remove(m *yaml.Node, i, limit int) error {
	k, end := m.Content[i], e.endOf(m, i, limit)
	if end <= k.Line || !e.begins(k) {
		return errForm
	}
	if i == 0 && len(m.Content) > 2 {
		next := m.Content[2]
		if !e.begins(next) {
			return errForm
		}
		e.lines[next.Line-1] = string([]rune(e.lines[k.Line-1])[:k.Column-1]) + string([]rune(e.lines[next.Line-1])[next.Column-1:])
	}
	e.lines = slices.Delete(e.lines, k.Line-1, end-1)
	return nil
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
