package csiclient

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// All drivers share the memory of the process: no driver may take what the others need.
const (
	// maxAnswer bounds all answers but a page of ListVolumes, in bytes. The API server refuses a longer
	// status.attachmentMetadata, so no publish context is larger.
	maxAnswer = 256 << 10
	// maxPage bounds an answer to ListVolumes, in bytes: some drivers ignore max_entries.
	maxPage = 4 << 20
	// maxHeaders bounds the headers of an answer, in bytes. They carry the text of an error, which takes
	// up to three times its size there, and its details. gRPC's default is 16 MiB.
	maxHeaders = 128 << 10
	// The bytes that a driver may send ahead of the reader, of one call and of all.
	streamWindow, connectionWindow = 64 << 10, 1 << 20
)

// largeHeaders are parts of the errors with which gRPC reports headers above maxHeaders. They have no type.
var largeHeaders = []string{
	"peer header list size exceeded limit",
	"RST_STREAM with error code: INTERNAL", // the server knows the limit and sends no headers
	"connection error: COMPRESSION_ERROR",  // the server ignores the limit
	"connection error: PROTOCOL_ERROR",     // the same
}

// largeAnswer is the error of a call whose answer is above the limit of the call.
type largeAnswer struct{ error }

// Unwrap returns the gRPC status.
func (e largeAnswer) Unwrap() error { return e.error }

// isLargeMessage reports whether err is of gRPC's limit for the answer. The server of a driver may have the same error
// about a request, or about its backend, with another limit.
func isLargeMessage(err error, limit int) bool {
	s := status.Convert(err)
	text := s.Message()
	return s.Code() == codes.ResourceExhausted && strings.HasPrefix(text, "grpc: ") && strings.Contains(text, "larger than max") &&
		(strings.HasSuffix(text, fmt.Sprintf(" vs. %d)", limit)) || strings.HasSuffix(text, fmt.Sprintf(" max %d", limit)))
}

// explainLimit returns the error of a call with a limit for its answer. For an answer above the limit the code is Internal: the
// driver's own ResourceExhausted means that a node is full. The call may have taken effect, as after every error.
func explainLimit(driver, method string, limit int, err error) error {
	if err == nil {
		return nil
	}
	text := status.Convert(err).Message()
	answer, advice := fmt.Sprintf("the answer of driver %s to %s", driver, path.Base(method)), ""
	if limit == maxPage {
		advice = " (lower drift.pageSize)"
	}
	switch {
	case isLargeMessage(err, limit):
		return largeAnswer{status.Errorf(codes.Internal, "%s is too large, the driver must answer with less%s: %s", answer, advice, text)}
	case slices.ContainsFunc(largeHeaders, func(part string) bool { return strings.Contains(text, part) }):
		return status.Errorf(status.Code(err), "%s failed, perhaps because its error text has more than %d bytes: %s", answer, maxHeaders, text)
	}
	return err
}

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
// truncate it: the caller must find secrets in it first.
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
