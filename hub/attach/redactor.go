package attach

import (
	"slices"
	"sync"
)

const (
	// recentSecrets and recentBytes bound the values that a Redactor knows besides those of calls in flight: most
	// drivers have one or two Secrets for all volumes.
	recentSecrets = 64
	recentBytes   = 64 << 10
)

// Redactor removes the values of secrets from the texts of one driver, also from texts that belong to no call: a
// driver may repeat in the error of a Probe what it got in a publish. It knows the values of the calls in flight and of
// the latest calls. The zero value is ready to use, and safe for concurrent use. It keeps the values and their forms in
// memory only.
type Redactor struct {
	mu     sync.Mutex
	recent []secretValue // the latest last; guarded by mu
}

type secretValue struct {
	text  string
	calls int            // in flight that have it
	forms func() formSet // computed at the first error after the first call that had the value
}

// computingForms has one goroutine of the process compute forms at a time: those of a large value take several times its
// memory, and many calls may fail at once.
var computingForms sync.Mutex

func newSecretValue(text string) secretValue {
	return secretValue{text: text, forms: sync.OnceValue(func() formSet {
		computingForms.Lock()
		defer computingForms.Unlock()
		return newFormSet(hiddenForms(text))
	})}
}

// Use takes the secrets of a call that begins. The caller calls end when the call has ended and its error is redacted.
func (r *Redactor) Use(secrets map[string]string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range secrets {
		if len(text) < shortestSecret {
			continue
		}
		i := r.index(text)
		if i < 0 {
			i = len(r.recent)
			r.recent = append(r.recent, newSecretValue(text))
		}
		value := r.recent[i]
		value.calls++
		r.recent = append(slices.Delete(r.recent, i, i+1), value)
	}
	r.drop()
	return func() { r.end(secrets) }
}

func (r *Redactor) end(secrets map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range secrets {
		if i := r.index(text); i >= 0 {
			r.recent[i].calls--
		}
	}
	r.drop()
}

func (r *Redactor) index(text string) int {
	return slices.IndexFunc(r.recent, func(v secretValue) bool { return v.text == text })
}

// drop drops the values that no call in flight has and that do not fit into the bounds beside later ones.
func (r *Redactor) drop() {
	values, size := 0, 0
	kept := r.recent[:0:0]
	for _, v := range slices.Backward(r.recent) {
		if v.calls == 0 {
			if values == recentSecrets || size+len(v.text) > recentBytes {
				continue
			}
			values++
			size += len(v.text)
		}
		kept = append(kept, v)
	}
	slices.Reverse(kept)
	r.recent = kept
}

// hidden returns the forms of the values that the Redactor knows. It computes those that it does not have yet.
func (r *Redactor) hidden() formSets {
	r.mu.Lock()
	recent := slices.Clone(r.recent)
	r.mu.Unlock()
	sets := make(formSets, len(recent))
	for i, v := range recent {
		sets[i] = v.forms()
	}
	return sets
}

// Error returns an error of the driver with a text that is safe to store, log and show. The error still matches what it
// matched, and has its gRPC code.
func (r *Redactor) Error(err error) error {
	if err == nil {
		return nil
	}
	return redact(err, r.hidden())
}

// Text returns a text of the driver that is safe to store, log and show, and at most limit bytes long.
func (r *Redactor) Text(text string, limit int) string { return redactText(text, r.hidden(), limit) }
