package attach

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// shortestSecret is the length of the shortest values that are removed from errors. Texts may contain
// shorter values by chance.
const shortestSecret = 6

// redact returns the error of a call with a text that is safe to store, log and show: sanitized,
// truncated, and without the values of secrets. A driver may repeat its input, and people who must
// not read the Secret can read VolumeAttachments, Events and logs.
func redact(err error, secrets map[string]string) error {
	hide := strings.NewReplacer(hidden(secrets)...)
	// Replace again: Sanitize can produce the text of a secret. Truncate last: a secret that was cut
	// would not be found.
	text := hide.Replace(csiclient.Sanitize(hide.Replace(err.Error())))
	if text = csiclient.Truncate(text, csiclient.MaxText); text == err.Error() {
		return err
	}
	return redacted{text: text, cause: err}
}

// hidden returns the forms in which an error may repeat the values of secrets, each followed by its
// replacement.
func hidden(secrets map[string]string) []string {
	var texts []string
	for _, value := range secrets {
		// Files end with a newline, which drivers trim; texts in errors are often quoted.
		trimmed := strings.TrimSpace(value)
		quoted := strconv.Quote(trimmed)
		texts = append(texts, value, trimmed, csiclient.Sanitize(trimmed), quoted[1:len(quoted)-1])
	}
	// Longest first: a text may begin with another one.
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	var replacements []string
	for _, text := range slices.Compact(texts) {
		if len(text) >= shortestSecret {
			replacements = append(replacements, text, "[secret]")
		}
	}
	return replacements
}

// redacted is an error with another text, which matches the errors that its cause matches.
type redacted struct {
	text  string
	cause error
}

func (r redacted) Error() string { return r.text }

// Is compares the cause. There is no Unwrap, which would reveal the text of the cause.
func (r redacted) Is(target error) bool { return errors.Is(r.cause, target) }

// GRPCStatus returns a status with the code of the cause.
func (r redacted) GRPCStatus() *status.Status {
	return status.New(status.Code(r.cause), r.text)
}
