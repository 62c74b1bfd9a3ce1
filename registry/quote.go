package registry

import "strconv"

// maxQuoted bounds the bytes of a user's text that a message repeats.
const maxQuoted = 120

// quote returns a user's text for a message: in quotes, on one line, cut to maxQuoted, with
// escapes for look-alikes of ASCII letters.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.QuoteToASCII(s)
	}
	return strconv.QuoteToASCII(s[:maxQuoted]) + "..."
}

// clip is quote without the quotes where no escape is needed.
func clip(s string) string {
	if quoted := quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}
