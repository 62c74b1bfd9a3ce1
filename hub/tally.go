package hub

import (
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// keptFailures is how many failures of a driver are kept to be shown.
const keptFailures = 10

// tally counts what is done for a driver for as long as it is engaged, in the metrics
// and to be shown.
type tally struct {
	metrics *status.DriverMetrics

	mu       sync.Mutex
	done     map[status.Operation]uint64
	failed   map[status.Operation]uint64
	stuck    map[status.Operation]int
	failures []status.Failure // the latest first
}

func newTally(m *status.DriverMetrics) *tally {
	return &tally{metrics: m, done: map[status.Operation]uint64{}, failed: map[status.Operation]uint64{}, stuck: map[status.Operation]int{}}
}

// succeeded counts an operation that took so long since it was asked for.
func (t *tally) succeeded(op status.Operation, took time.Duration) {
	t.metrics.Operation(op, status.Success, took)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[op]++
}

// failedWith counts a try that failed.
func (t *tally) failedWith(err error, f status.Failure, took time.Duration) {
	t.metrics.Operation(f.Operation, status.ResultOf(err), took)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed[f.Operation]++
	t.failures = append([]status.Failure{f}, t.failures[:min(len(t.failures), keptFailures-1)]...)
}

// setStuck notes how many VolumeAttachments are stuck.
func (t *tally) setStuck(stuck map[status.Operation]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stuck = stuck
}

// fill puts the counts of a lane into it.
func (t *tally) fill(l *status.Lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.Done, l.Failed, l.Stuck = t.done[l.Operation], t.failed[l.Operation], t.stuck[l.Operation]
}

// latest returns the latest failures, the last one first.
func (t *tally) latest() []status.Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]status.Failure(nil), t.failures...)
}

// operationOf names an operation as metrics and status do.
func operationOf(op attach.Operation) status.Operation {
	if op == attach.Detaching {
		return status.Detach
	}
	return status.Attach
}
