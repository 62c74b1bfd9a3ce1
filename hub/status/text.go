package status

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

const (
	// Bytes of a foreign text that a list shows, and the page of its object.
	shortText = 300
	longText  = 8 << 10
)

// sanitize bounds the length of a foreign text and replaces characters that would hide or reverse
// the text beside it. It does not escape.
func sanitize(text string, limit int) string {
	rest := len(text) - limit
	if rest > 0 {
		text = text[:limit]
	}
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if rest > 0 {
		text += fmt.Sprintf(" … (%s more bytes)", count(rest))
	}
	return strings.TrimSpace(text)
}

// count returns a number with commas: 10,000.
func count(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// plural returns a number with its noun.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + more
}
