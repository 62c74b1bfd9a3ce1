package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// Retries counts the failures of an item. It belongs to the worker that has the item.
type Retries struct {
	Operation attach.Operation
	Failures  int       // of Operation, in a row
	Since     time.Time // the first of them
	NoPlace   int       // of Failures, because the node was full: they make no later wait longer
	ReadAnew  types.UID // of the object, if it was read from the API server in this term

	// Session was in use when the run began. Disconnects counts sessions in a row that ended during a call for the item, and
	// LastSession is the last of them.
	Session     any
	Disconnects int
	LastSession any
	due         time.Time // in the last term, of a suspect
	// AfterReconnect is how long a suspect waits at least after the driver is connected again.
	AfterReconnect time.Duration
}

// DisconnectsAllowed is how often in a row the connection may end during a call for one volume.
const DisconnectsAllowed = 3

// Suspect reports whether the calls for the item may be what ends the driver's process, and with it the calls for all
// other volumes. The wait of a suspect is its own: a new connection does not end it.
func (r *Retries) Suspect() bool { return r.Disconnects > DisconnectsAllowed }

// Failed counts a failure, and returns how many there were in a row. Attach and detach do not share a
// count: the first detach after many failed attaches must not wait.
func (r *Retries) Failed(op attach.Operation, now time.Time) int {
	if r.Operation != op || r.Failures == 0 {
		r.Operation, r.Failures, r.Since, r.NoPlace = op, 0, now, 0
	}
	r.Failures++
	return r.Failures
}

// Disconnected counts a session that has ended during a call. It counts each session once.
func (r *Retries) Disconnected(session any) {
	if session != r.LastSession {
		r.Disconnects, r.LastSession = r.Disconnects+1, session
	}
}
