package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// errForm is about a file whose form an editor does not know.
var errForm = errors.New("the form of the file is not supported: change it with a text editor")

const byteOrderMark = "\ufeff"

// lineForm is how a text begins and how its lines end.
type lineForm struct {
	mark  string
	crlf  bool
	noEnd bool // the last line has no line end
}

// plainLines returns a text with a line feed after each line, and without a byte order mark.
func plainLines(data []byte) (string, lineForm, error) {
	text, marked := strings.CutPrefix(string(data), byteOrderMark)
	form := lineForm{crlf: strings.Contains(text, "\r\n"), noEnd: !strings.HasSuffix(text, "\n")}
	if marked {
		form.mark = byteOrderMark
	}
	if form.crlf && strings.Count(text, "\n") != strings.Count(text, "\r\n") {
		return "", form, errors.New("some lines end with CRLF and others with LF: give all lines the same end with a text editor")
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if !utf8.ValidString(text) {
		return "", form, errors.New("the file is not in UTF-8: convert it")
	}
	if i := strings.IndexAny(text, "\r\u0085\u2028\u2029"); i >= 0 { // YAML takes them for line ends
		r, _ := utf8.DecodeRuneInString(text[i:])
		return "", form, fmt.Errorf("line %d has the character %U, which ends a line in YAML: remove it with a text editor", strings.Count(text[:i], "\n")+1, r)
	}
	if form.noEnd {
		text += "\n"
	}
	return text, form, nil
}

// in returns plain lines in a form.
func (f lineForm) in(text string) []byte {
	if f.noEnd {
		text = strings.TrimSuffix(text, "\n")
	}
	if f.crlf {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return []byte(f.mark + text)
}

// checkKept returns an error unless a text has all that it had before a change: the values of all other keys, and the
// comments. The comments inside a key that was removed go with it.
func checkKept(before, after, driver string, c Change) error {
	if rest(before, driver, c.Key) != rest(after, driver, c.Key) {
		return errForm
	}
	if !c.Remove && !slices.Equal(comments(before), comments(after)) {
		return fmt.Errorf("a comment in or beside %s would be lost: change the key with a text editor", c.Key)
	}
	return nil
}

// rest returns the content of a file without one key of a driver's entry, and without comments. It returns "" for what is no
// YAML.
func rest(text, driver, key string) string {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || len(document.Content) == 0 {
		return ""
	}
	root := withoutComments(document.Content[0])
	for i := len(root.Content) - 2; i >= 0 && root.Kind == yaml.MappingNode; i -= 2 {
		if list := root.Content[i+1]; root.Content[i].Value == "drivers" {
			list.Content = slices.DeleteFunc(list.Content, func(n *yaml.Node) bool {
				if !isEntryOf(n, driver) {
					return false
				}
				without(n, strings.SplitN(key, ".", 2))
				return len(n.Content) == 2 // its name
			})
			if len(list.Content) == 0 {
				root.Content = slices.Delete(root.Content, i, i+2)
			}
		}
	}
	return flow(root)
}

// without removes a key from a mapping, and its group if that has no other key.
func without(m *yaml.Node, keys []string) {
	for i := len(m.Content) - 2; i >= 0; i -= 2 {
		if m.Content[i].Value != keys[0] {
			continue
		}
		value := m.Content[i+1]
		if len(keys) > 1 && value.Kind == yaml.MappingNode {
			if without(value, keys[1:]); len(value.Content) > 0 {
				continue
			}
		}
		m.Content = slices.Delete(m.Content, i, i+2)
	}
}

// comments returns all lines of comments in a text, sorted.
func comments(text string) []string {
	var all []string
	var collect func(n *yaml.Node)
	collect = func(n *yaml.Node) {
		for _, comment := range []string{n.HeadComment, n.LineComment, n.FootComment} {
			for line := range strings.Lines(comment) {
				if line = strings.TrimSpace(line); line != "" {
					all = append(all, line)
				}
			}
		}
		for _, inner := range n.Content {
			collect(inner)
		}
	}
	var document yaml.Node
	if yaml.Unmarshal([]byte(text), &document) == nil {
		collect(&document)
	}
	slices.Sort(all)
	return all
}
