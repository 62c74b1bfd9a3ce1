package attach

import (
	"cmp"
	"encoding/base64"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// shortestSecret is the length from which values are removed, in bytes: shorter ones are parts of usual words.
const shortestSecret = 6

// Redactor removes the values of secrets from those texts of one driver that belong to no call with secrets: a driver may
// repeat in the error of a Probe what it got in a publish. It knows the values of the calls in flight and of publications.
// It is safe for concurrent use.
type Redactor struct {
	// Publications returns the secrets of the driver's publications.
	Publications func() []map[string]string

	calls sync.Map // the secrets of the calls in flight, as pointers to maps
}

func (r *Redactor) secrets() (all []map[string]string) {
	r.calls.Range(func(secrets, _ any) bool {
		all = append(all, *secrets.(*map[string]string))
		return true
	})
	return append(all, r.Publications()...)
}

// Error returns an error of the driver with a text that is safe to store, log and show. The error still matches what it
// matched, and has its gRPC code.
func (r *Redactor) Error(err error) error {
	if err == nil {
		return nil
	}
	return Redact(err, r.secrets()...)
}

// Text returns a text of the driver that is safe to store, log and show, and at most limit bytes long.
func (r *Redactor) Text(text string, limit int) string {
	return redactText(text, limit, r.secrets()...)
}

// Redact returns an error with a text that is safe to store, log and show: sanitized, without the values of secrets, and
// truncated. A driver may repeat its input, and people who must not read the Secret can read VolumeAttachments, Events
// and logs. It is best effort: it does not find a value that the driver has changed in another way than replacer does.
func Redact(err error, secrets ...map[string]string) error {
	text := redactText(err.Error(), csiclient.MaxText, secrets...)
	if text == err.Error() {
		return err
	}
	return redacted{text: text, cause: err}
}

func redactText(text string, limit int, secrets ...map[string]string) string {
	// Truncate last: a secret that was cut would not be found.
	return csiclient.Truncate(replacer(secrets).Replace(csiclient.Sanitize(text)), limit)
}

// replacer returns what replaces the values of secrets as they are, trimmed, in base64 and escaped as in URLs, the longest first.
func replacer(secrets []map[string]string) *strings.Replacer {
	forms := map[string]bool{}
	for _, values := range secrets {
		for _, value := range values {
			for _, text := range []string{value, strings.TrimSpace(value)} {
				if len(text) < shortestSecret || forms[csiclient.Sanitize(text)] {
					continue
				}
				for _, form := range []string{
					csiclient.Sanitize(text), // as the text in which it is looked for
					base64.RawStdEncoding.EncodeToString([]byte(text)), base64.RawURLEncoding.EncodeToString([]byte(text)),
					url.QueryEscape(text), url.PathEscape(text),
				} {
					forms[form] = true
				}
			}
		}
	}
	longestFirst := slices.SortedFunc(maps.Keys(forms), func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range longestFirst {
		pairs = append(pairs, form, "[secret]")
	}
	return strings.NewReplacer(pairs...)
}

// redacted is an error with another text, which matches the errors that its cause matches.
type redacted struct {
	text  string
	cause error
}

func (r redacted) Error() string { return r.text }

// Is compares the cause. There is no Unwrap, which would reveal the text of the cause.
func (r redacted) Is(target error) bool { return errors.Is(r.cause, target) }

// GRPCStatus returns the status of the cause with the other text, nil if the driver has not answered.
func (r redacted) GRPCStatus() *status.Status {
	if answer, ok := status.FromError(r.cause); ok {
		return status.New(answer.Code(), r.text)
	}
	return nil
}
