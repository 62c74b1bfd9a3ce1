package attach

import (
	"errors"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// redact returns an error with a text that is safe to store, log and show: sanitized, without the hidden forms, and
// truncated. A driver may repeat its input, and people who must not read the Secret can read VolumeAttachments, Events
// and logs. It is best effort: it does not find a value that the driver has changed in another way than formsOf does.
func redact(err error, hidden formSets) error {
	text := redactText(err.Error(), hidden, csiclient.MaxText)
	if text == err.Error() {
		return err
	}
	if _, ok := status.FromError(err); ok {
		return redactedStatus{redacted{text: text, cause: err}}
	}
	return redacted{text: text, cause: err}
}

// redactText returns a text sanitized, without the hidden forms, and at most limit bytes long.
func redactText(text string, hidden formSets, limit int) string {
	// Truncate last: a secret that was cut would not be found.
	return csiclient.Truncate(hidden.replace(csiclient.Sanitize(text), limit), limit)
}

// maxScanned bounds the bytes of a text in which forms are looked for, in a text that has many of them.
const maxScanned = 64 << 10

// replace replaces the forms in a text, also those that overlap. It stops when it has more than limit bytes, or after
// maxScanned bytes, but not within a form.
func (s formSets) replace(text string, limit int) string {
	if len(s) == 0 {
		return text
	}
	var out strings.Builder
	i, end := 0, 0 // end of the forms that were found
	for ; i < len(text) && out.Len() <= limit && (i < maxScanned || i < end); i++ {
		if n := s.longest(text[i:]); n > 0 && i+n > end {
			if i >= end {
				out.WriteString("[secret]")
			}
			end = i + n
		}
		if i >= end {
			out.WriteByte(text[i])
		}
	}
	if i < len(text) && out.Len() <= limit {
		return csiclient.Sanitize(out.String()) + " [...]" // it may end within a character
	}
	return out.String()
}

// redacted is an error with another text, which matches the errors that its cause matches.
type redacted struct {
	text  string
	cause error
}

func (r redacted) Error() string { return r.text }

// Is compares the cause. There is no Unwrap, which would reveal the text of the cause.
func (r redacted) Is(target error) bool { return errors.Is(r.cause, target) }

// redactedStatus is the redacted error of a call that the driver answered.
type redactedStatus struct{ redacted }

// GRPCStatus returns a status with the code of the cause.
func (r redactedStatus) GRPCStatus() *status.Status {
	return status.New(status.Code(r.cause), r.text)
}
