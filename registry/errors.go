package registry

import (
	"cmp"
	"strconv"
	"strings"
)

// Error is one mistake in a drivers.yaml.
type Error struct {
	File    string // as it was named to Parse or ParseFile
	Line    int    // counted from 1; 0 if the file as a whole is meant
	Path    string // of the value, "drivers[1].timeout"; "" if no value is meant
	Message string // what is wrong and what to do; one line
}

// Error returns "file:line: path: message", without the parts that are not known.
func (e Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += ":" + strconv.Itoa(e.Line)
	}
	if e.Path != "" {
		s += ": " + e.Path
	}
	return s + ": " + e.Message
}

// compareErrors orders mistakes by their places.
func compareErrors(a, b Error) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

// Errors is every mistake in a drivers.yaml, in order of line. It is what Parse
// and ParseFile fail with (errors.As), and never empty then.
type Errors []Error

// Error returns one line for each mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

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
