package attach

import (
	"slices"
	"sync"
)

const (
	// recentSecrets and recentBytes bound the values that a Redactor knows: most drivers have one or two Secrets
	// for all volumes.
	recentSecrets = 64
	recentBytes   = 64 << 10
)

// Redactor removes the values of secrets from the texts of one driver, also from texts that belong to no call: a
// driver may repeat in the error of a Probe what it got in a publish. It knows the values of the latest calls. The
// zero value is ready to use, and safe for concurrent use. It keeps the values in memory only. A value longer than
// recentBytes is removed only from the error of its own call.
type Redactor struct {
	mu      sync.Mutex
	forgets bool          // see Keep; guarded by mu
	recent  []secretValue // the latest last; guarded by mu
}

type secretValue struct {
	text  string
	calls int // in flight that have it
}

// Keep says whether values are known after the calls that had them. The bounds hold in both cases.
func (r *Redactor) Keep(keep bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgets = !keep
	r.drop()
}

// Use takes the secrets of a call that begins. The caller calls end when the call has ended.
func (r *Redactor) Use(secrets map[string]string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range secrets {
		if len(text) < shortestSecret || len(text) > recentBytes {
			continue
		}
		value := secretValue{text: text}
		if i := r.index(text); i >= 0 {
			value = r.recent[i]
			r.recent = slices.Delete(r.recent, i, i+1)
		}
		value.calls++
		r.recent = append(r.recent, value)
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

// drop drops the values that are not to be kept, and the oldest ones above the bounds.
func (r *Redactor) drop() {
	if r.forgets {
		r.recent = slices.DeleteFunc(r.recent, func(v secretValue) bool { return v.calls <= 0 })
	}
	first, size := len(r.recent), 0
	for first > 0 && len(r.recent)-first < recentSecrets && size+len(r.recent[first-1].text) <= recentBytes {
		first--
		size += len(r.recent[first].text)
	}
	r.recent = slices.Delete(r.recent, 0, first)
}

// hidden returns the values of a call's secrets and the values of other recent calls.
func (r *Redactor) hidden(secrets map[string]string) []string {
	var values []string
	for _, text := range secrets {
		values = append(values, text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range slices.Backward(r.recent) {
		if !slices.Contains(values, v.text) {
			values = append(values, v.text)
		}
	}
	return values
}

// Error returns an error of the driver with a text that is safe to store, log and show. The error still matches what it
// matched, and has its gRPC code.
func (r *Redactor) Error(err error) error {
	if err == nil {
		return nil
	}
	return redact(err, r.hidden(nil))
}

// Text returns a text of the driver that is safe to store, log and show, and at most limit bytes long.
func (r *Redactor) Text(text string, limit int) string { return redactText(text, r.hidden(nil), limit) }
