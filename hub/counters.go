package hub

import (
	"slices"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// keptFailures is the number of a driver's latest failures that the status shows.
const keptFailures = 10

// counters keep the latest failures of a driver for the status, and pass each operation on to the metrics.
type counters struct {
	metrics *status.DriverMetrics

	mu       sync.Mutex
	failures []status.Failure // the latest first; guarded by mu
}

// countSuccess counts an operation that succeeded. took is the time since it was first asked for.
func (c *counters) countSuccess(op status.Operation, took time.Duration) {
	c.metrics.Operation(op, status.Success, took)
}

// countFailure counts a try that failed. took is the time since the operation was first asked for.
func (c *counters) countFailure(err error, f status.Failure, took time.Duration) {
	c.metrics.Operation(f.Operation, status.ResultOf(err), took)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append([]status.Failure{f}, c.failures[:min(len(c.failures), keptFailures-1)]...)
}

// latestFailures returns the latest failures, the latest first.
func (c *counters) latestFailures() []status.Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.failures)
}

// operationOf returns an operation in the terms of metrics and status.
func operationOf(op attach.Operation) status.Operation {
	if op == attach.Detaching {
		return status.Detach
	}
	return status.Attach
}
