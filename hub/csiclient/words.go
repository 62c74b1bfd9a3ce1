package csiclient

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/status"
)

const (
	// MaxWords is how much is kept of what a driver says in an error, in bytes. gRPC takes
	// up to 16 MiB, and there may be an error for each of thousands of volumes.
	MaxWords = 4 << 10
	// maxName is how much is kept of a driver's name and version, in bytes. The CSI spec
	// allows 63 and 128.
	maxName = 253
)

// Plain makes a text that a driver sent fit to be stored, logged and shown: it becomes valid
// UTF-8 without control characters but line ends and tabs. What else there is becomes '?'.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// Shorten cuts a text to so many bytes, at least 6, and not within a character of UTF-8. A
// mark at its end says that it was cut.
func Shorten(text string, limit int) string {
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

// words makes an error that a driver answered with one that can be shown. What it is stays
// the same: its code.
func words(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	if text := Shorten(Plain(s.Message()), MaxWords); text != s.Message() {
		return status.Error(s.Code(), text)
	}
	return err
}
