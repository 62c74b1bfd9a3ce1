package csiclient

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/status"
)

const (
	// MaxText bounds the text of a driver's error that is stored, logged or shown, in bytes. A message may
	// have 128 KiB, and there may be an error for each of thousands of volumes.
	MaxText = 4 << 10
	// MaxVersion is the same for a driver's version. The CSI spec allows 128.
	MaxVersion = 253
)

// Sanitize returns a driver's text in a form that is safe to store, log and show. It replaces
// invalid UTF-8, and control characters other than line ends and tabs, by '?'.
func Sanitize(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// Truncate returns at most limit bytes of a text; limit is at least 6. It does not cut within
// a character of UTF-8, and marks the end of a text that was cut.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const mark = " [...]"
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// sanitizeError returns the error of a call with the same code and a sanitized message. It does not
// truncate it: the caller has to find secrets in it first.
func sanitizeError(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	if text := Sanitize(s.Message()); text != s.Message() {
		return status.Error(s.Code(), text)
	}
	return err
}
