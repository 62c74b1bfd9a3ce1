package terminal

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Whatever a text holds, it is one line of what can be seen.
func FuzzLine(f *testing.F) {
	f.Add("a\x1b[31m\n\u2028 b\xff\xc3")
	f.Add("\u0085\u202e\U000e0041\ufffd\ufeff")
	f.Fuzz(func(t *testing.T, text string) {
		line := Line(text)
		if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsGraphic(r) || r != ' ' && unicode.IsSpace(r) }) {
			t.Errorf("%q is printed as %q", text, line)
		}
		if again := Line(line); again != line {
			t.Errorf("%q is %q the second time", line, again)
		}
	})
}

// Whatever JSON there is, it stays the same value and has nothing that a terminal acts on.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":["\u001b\u202e` + "\u202e\U000e0041\x7f" + `"]}`))
	f.Add([]byte("[1,\r\n\t\"\u2028\"]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var value, again any
		if !utf8.Valid(data) || json.Unmarshal(data, &value) != nil {
			return
		}
		// As encoding/json writes it: what is printed comes from there.
		var plain bytes.Buffer
		if err := json.Indent(&plain, mustMarshal(t, value), "", "  "); err != nil {
			t.Fatal(err)
		}
		safe := JSON(plain.Bytes())
		if err := json.Unmarshal(safe, &again); err != nil || !reflect.DeepEqual(value, again) {
			t.Errorf("%q becomes %q: %v", plain.Bytes(), safe, err)
		}
		if bytes.ContainsFunc(safe, func(r rune) bool {
			return r != '\n' && r != '\t' && (!unicode.IsGraphic(r) || r != ' ' && unicode.IsSpace(r))
		}) {
			t.Errorf("%q is printed as %q", plain.Bytes(), safe)
		}
	})
}

func mustMarshal(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
