package attach

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// redact returns an error with a text that is safe to store, log and show: sanitized, without the hidden values, and
// truncated. A driver may repeat its input, and people who must not read the Secret can read VolumeAttachments, Events
// and logs. It is best effort: it does not find a value that the driver has changed in another way than formsOf does.
func redact(err error, hidden []string) error {
	text := redactText(err.Error(), hidden, csiclient.MaxText)
	if text == err.Error() {
		return err
	}
	if _, ok := status.FromError(err); ok {
		return redactedStatus{redacted{text: text, cause: err}}
	}
	return redacted{text: text, cause: err}
}

// redactText returns a text sanitized, without the hidden values, and at most limit bytes long.
func redactText(text string, hidden []string, limit int) string {
	// Truncate last: a secret that was cut would not be found.
	text = csiclient.Sanitize(text)
	return csiclient.Truncate(newFormSet(hiddenForms(hidden, len(text))).replace(text, limit), limit)
}

// formSet finds texts in other texts. The effort for each byte does not depend on their number.
type formSet struct {
	forms  []string // sorted, each once
	prefix []int    // of each form, the index of the longest other form that it begins with; -1: none
	heads  map[[shortestSecret]byte]span
}

// span is the indices of the forms that begin with the same bytes: from begin to before end.
type span struct{ begin, end int }

// newFormSet returns the set of the forms of at least shortestSecret bytes.
func newFormSet(forms []string) formSet {
	forms = slices.DeleteFunc(forms, func(f string) bool { return len(f) < shortestSecret })
	slices.Sort(forms)
	forms = slices.Compact(forms)
	s := formSet{forms: forms, prefix: make([]int, len(forms)), heads: make(map[[shortestSecret]byte]span)}
	for i, form := range forms {
		head := [shortestSecret]byte([]byte(form))
		if known, ok := s.heads[head]; ok {
			s.heads[head] = span{known.begin, i + 1}
		} else {
			s.heads[head] = span{i, i + 1}
		}
		p := i - 1
		for p >= 0 && !strings.HasPrefix(form, forms[p]) {
			p = s.prefix[p]
		}
		s.prefix[i] = p
	}
	return s
}

// longest returns the length of the longest form that a text begins with, 0 if there is none.
func (s formSet) longest(text string) int {
	if len(text) < shortestSecret {
		return 0
	}
	at, ok := s.heads[[shortestSecret]byte([]byte(text[:shortestSecret]))]
	if !ok {
		return 0
	}
	// All forms between the one that is looked for and the text, in this order, begin with it.
	i, same := slices.BinarySearch(s.forms[at.begin:at.end], text)
	if i += at.begin; !same {
		i--
	}
	for ; i >= at.begin; i = s.prefix[i] {
		if strings.HasPrefix(text, s.forms[i]) {
			return len(s.forms[i])
		}
	}
	return 0
}

// maxScanned bounds the bytes of a text in which forms are looked for, in a text that has many of them.
const maxScanned = 64 << 10

// replace replaces the forms in a text, also those that overlap. It stops when it has more than limit bytes, or after
// maxScanned bytes, but not within a form.
func (s formSet) replace(text string, limit int) string {
	if len(s.forms) == 0 {
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
