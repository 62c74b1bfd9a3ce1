// Package terminal makes texts from outside safe to print. The error of a CSI driver may
// contain sequences that recolour a terminal, rename its window, overwrite the lines above
// or reverse the direction of reading. Invisible characters are made visible; none is lost.
package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns a text on one line: runs of white space become one space, and characters that
// cannot be printed are escaped as in Go source (\x1b, \u202e).
func Line(text string) string {
	var out strings.Builder
	space := false
	for i, r := range text {
		if unicode.IsSpace(r) && r != '\u0085' { // U+0085 is a control character too
			space = true
			continue
		}
		if space && out.Len() > 0 {
			out.WriteByte(' ')
		}
		space = false
		switch {
		case r == utf8.RuneError && strings.HasPrefix(text[i:], "\ufffd"):
			out.WriteRune(r)
		case r == utf8.RuneError:
			fmt.Fprintf(&out, `\x%02x`, text[i])
		case visible(r):
			out.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// JSON escapes in valid JSON the characters that a terminal would act on. They can only be
// in strings there, so the value stays the same.
func JSON(valid []byte) []byte {
	var out strings.Builder
	for _, r := range string(valid) {
		switch {
		case r == '\n' || r == '\t' || visible(r):
			out.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return []byte(out.String())
}

// visible reports whether a rune is shown: it is no control character, and does not only
// change how others are shown.
func visible(r rune) bool { return r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) }
