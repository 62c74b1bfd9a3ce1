package registry

import (
	"strconv"
	"unicode/utf8"
)

// maxQuoted is how many bytes of what a user wrote a message repeats.
const maxQuoted = 120

// quote repeats in a message what a user wrote: in quotes, on one line, not too
// much of it, and so that a look-alike of an ASCII letter shows.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.QuoteToASCII(s)
	}
	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.QuoteToASCII(s[:cut]) + "..."
}

// clip is quote without the quotes, where they are not needed.
func clip(s string) string {
	if quoted := quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
