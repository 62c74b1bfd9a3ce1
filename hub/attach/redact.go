package attach

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/status"
)

// shortestSecret is how long a value is at least that is taken out of an error: to take
// out shorter ones would garble texts in which they stand by chance.
const shortestSecret = 6

// redact takes the values of secrets out of the error of a call. A driver that repeats
// what it was given would else have them in the VolumeAttachment, in Events and in logs,
// where others may read that must not read the secret.
func redact(err error, secrets map[string]string) error {
	text := err.Error()
	var values []string
	// The longest first: one may begin with another.
	longest := func(a, b string) int { return cmp.Compare(len(b), len(a)) }
	for _, value := range slices.SortedFunc(maps.Values(secrets), longest) {
		if len(value) >= shortestSecret && strings.Contains(text, value) {
			values = append(values, value, "[secret]")
		}
	}
	if len(values) == 0 {
		return err
	}
	return redacted{text: strings.NewReplacer(values...).Replace(text), cause: err}
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
