package registry

import "strconv"

// maxQuoted is how many bytes of what a user wrote a message repeats.
const maxQuoted = 120

// quote repeats in a message what a user wrote: in quotes, on one line, not too
// much of it, and so that a look-alike of an ASCII letter shows.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.QuoteToASCII(s)
	}
	return strconv.QuoteToASCII(s[:maxQuoted]) + "..."
}

// clip is quote without the quotes, where they are not needed.
func clip(s string) string {
	if quoted := quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
