package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Retries is what decides when an item is tried again, besides its Tries. It belongs to the worker that has the item.
type Retries struct {
	Operation attach.Operation // of the Tries
	Since     time.Time        // when the first of them failed
	NoPlace   int              // of the Tries, because the node was full: they make no later wait longer
	ReadAnew  types.UID        // of the object, if it was read from the API server in this term

	// Session was in use when the run began. Disconnects counts sessions in a row that ended during a call for the item, and
	// LastSession is the last of them.
	Session     any
	Disconnects int
	LastSession any
	// AfterReconnect is how long a suspect waits at least after the driver is connected again.
	AfterReconnect time.Duration
}

// DisconnectsAllowed is how often in a row the connection may end during a call for one volume.
const DisconnectsAllowed = 3

// Suspect reports whether the calls for the item may be what ends the driver's process, and with it the calls for all
// other volumes. The wait of a suspect is its own: a new connection does not end it.
func (r *Retries) Suspect() bool { return r.Disconnects > DisconnectsAllowed }

// Failed notes a try of an item that has failed, and returns how many there were in a row. Attach and detach do not share a
// count: the first detach after many failed attaches must not wait.
func (q *Queue) Failed(e *Item, op attach.Operation, text string, cause diagnosis.Cause) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := &e.Retries; r.Operation != op || e.Tries == 0 {
		r.Operation, r.Since, r.NoPlace, e.Tries = op, time.Now(), 0, 0
	}
	e.Tries, e.Error, e.Cause = e.Tries+1, text, cause
	return e.Tries
}

// Succeeded notes that the work of an item has succeeded.
func (q *Queue) Succeeded(e *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.forgive()
}

// forgive forgets what has failed.
func (e *Item) forgive() { e.Retries, e.Tries, e.Error, e.Cause = Retries{}, 0, "", diagnosis.Cause{} }

// Disconnected counts a session that has ended during a call. It counts each session once.
func (r *Retries) Disconnected(session any) {
	if session != r.LastSession {
		r.Disconnects, r.LastSession = r.Disconnects+1, session
	}
}
