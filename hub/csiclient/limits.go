package csiclient

import (
	"fmt"
	"path"
	"slices"
	"strings"

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
