package terminal

import (
	"encoding/json"
	"testing"
	"unicode"
)

func TestLineMakesVisibleWhatATerminalWouldActOn(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"plain", "rpc error: code = Internal desc = no", "rpc error: code = Internal desc = no"},
		{"other scripts stay", "Gerät größer 磁盘 é", "Gerät größer 磁盘 é"},
		{"colour", "\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"one-byte sequence introducer", "\u009b2J", `\u009b2J`},
		{"bell and delete", "a\ab\x7f", `a\ab\x7f`},
		{"lines", "one\r\n  two\n", "one two"},
		{"line and paragraph separators", "a\u2028b\u2029c", "a b c"},
		{"next line", "a\u0085b", "a b"},
		{"direction of reading", "a\u202eb\u2066c", `a\u202eb\u2066c`},
		{"zero width", "a\u200bb\ufeffc", `a\u200bb\ufeffc`},
		{"tags", "a\U000e0041b", `a\U000e0041b`},
		{"no UTF-8", "a\xff\xfeb", `a\xff\xfeb`},
		{"replacement character", "a\ufffdb", "a\ufffdb"},
		{"empty", " \n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Line(tt.text); got != tt.want {
				t.Errorf("Line(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func TestJSONStaysTheSameValueWithoutWhatATerminalWouldActOn(t *testing.T) {
	const text = "a\x1b[31m\u009b2J\u202e\U000e0041\x7f\u2028 <é>"
	plain, err := json.MarshalIndent(map[string]string{"error": text}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	safe := JSON(plain)
	for _, r := range string(safe) {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%q has %q in it", safe, r)
		}
	}
	var back map[string]string
	if err := json.Unmarshal(safe, &back); err != nil {
		t.Fatal(err)
	}
	if back["error"] != text {
		t.Errorf("the value is %q, want %q", back["error"], text)
	}
}
