package registry

import (
	"strconv"
	"unicode/utf8"
)

// maxQuoted is how much of what a user wrote a message repeats.
const maxQuoted = 120

// quote repeats what a user wrote in a message: on one line, and not too much.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "..."
}
