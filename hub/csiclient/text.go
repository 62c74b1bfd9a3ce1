package csiclient

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/status"
)

const (
	// MaxText bounds the text that is kept of a driver's error, in bytes. gRPC takes up to
	// 16 MiB, and there may be an error for each of thousands of volumes.
	MaxText = 4 << 10
	// maxName bounds the text that is kept of a driver's name and version, in bytes. The CSI
	// spec allows 63 and 128.
	maxName = 253
)

// Sanitize returns a text that a driver sent such that it can be stored, logged and shown: valid
// UTF-8, with '?' in place of other bytes and of control characters but line ends and tabs.
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

// sanitizeError returns the error of a call with a message that can be shown, and the same
// code.
func sanitizeError(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	if text := Truncate(Sanitize(s.Message()), MaxText); text != s.Message() {
		return status.Error(s.Code(), text)
	}
	return err
}
