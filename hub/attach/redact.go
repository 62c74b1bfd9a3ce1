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

// shortestSecret is how long a value is at least that is taken out of an error: to take
// out shorter ones would garble texts in which they stand by chance.
const shortestSecret = 6

// redact makes the error of a call one that can be stored, logged and shown: its text is
// plain and bounded, and without the values of secrets. A driver that repeats what it was
// given would else have them in the VolumeAttachment, in Events and in logs, where others
// may read that must not read the secret.
func redact(err error, secrets map[string]string) error {
	hide := strings.NewReplacer(hidden(secrets)...)
	// Once more for what reads like a secret only after that; and cut last, so that no
	// half of a secret is left.
	text := hide.Replace(csiclient.Sanitize(hide.Replace(err.Error())))
	if text = csiclient.Truncate(text, csiclient.MaxText); text == err.Error() {
		return err
	}
	return redacted{text: text, cause: err}
}

// hidden are the texts by which an error may repeat the values of secrets, each with what
// stands in its place.
func hidden(secrets map[string]string) []string {
	var texts []string
	for _, value := range secrets {
		// Files have a line end, which drivers trim; and texts in errors are often quoted.
		trimmed := strings.TrimSpace(value)
		quoted := strconv.Quote(trimmed)
		texts = append(texts, value, trimmed, csiclient.Sanitize(trimmed), quoted[1:len(quoted)-1])
	}
	// The longest first: one may begin with another.
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	var replacements []string
	for _, text := range slices.Compact(texts) {
		if len(text) >= shortestSecret {
			replacements = append(replacements, text, "[secret]")
		}
	}
	return replacements
}

// redacted is an error with another text. What it is can still be asked.
type redacted struct {
	text  string
	cause error
}

func (r redacted) Error() string { return r.text }

// Is asks the cause, without handing it out: its text is not to be seen.
func (r redacted) Is(target error) bool { return errors.Is(r.cause, target) }

// GRPCStatus has the code of the cause.
func (r redacted) GRPCStatus() *status.Status {
	return status.New(status.Code(r.cause), r.text)
}
