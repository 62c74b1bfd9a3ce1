package volume

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Retries counts what has kept the work of an entry from success. It belongs to the worker that has
// the entry.
type Retries struct {
	Operation attach.Operation
	Failures  int       // of that operation in a row
	Since     time.Time // the first of them
	ReadAnew  types.UID // of the object, if it was read from the API server in this term

	// Aways counts sessions in a row that ended while the driver was called, AwayFrom is the last.
	Aways    int
	AwayFrom any
}

// Failed counts one more failure and returns how many there were. Attach and detach do not share
// a count: the first detach after many failed attaches must not wait.
func (r *Retries) Failed(op attach.Operation, now time.Time) int {
	if r.Operation != op || r.Failures == 0 {
		r.Operation, r.Failures, r.Since = op, 0, now
	}
	r.Failures++
	return r.Failures
}

// Away takes in that a session has ended during a call, and returns of how many sessions in a row
// that is true. Work may meet the end of one session more than once.
func (r *Retries) Away(session any) int {
	if session != r.AwayFrom {
		r.Aways, r.AwayFrom = r.Aways+1, session
	}
	return r.Aways
}

// NoteFailure notes how many tries of an entry have failed in a row, and the last error with what
// it means, to be shown.
func (t *Table) NoteFailure(e *Entry, failures int, text string, cause diagnosis.Cause) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.failures, e.failure, e.cause = failures, text, cause
}
