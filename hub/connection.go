package hub

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

const (
	// The pauses between two tries to connect: short at first, and never so long that users would notice.
	connectRetryInitial = 200 * time.Millisecond
	connectRetryMax     = 2 * time.Second
	// steadySession is how long a session must last for the pauses to start at the shortest again.
	steadySession = 10 * time.Second
)

// connection keeps a driver connected for as long as it is served, also while another process works for it: a
// takeover must not cost a dial. It writes its state into the manager's driverState.
type connection struct {
	manager *manager
	connect ConnectFunc
	log     loglimit.Problem

	capabilityLog loglimit.Problem // of connections to a driver that may be the wrong one
}

// run keeps a session to the driver until ctx ends. fail takes a panic in a goroutine of its own.
func (c *connection) run(ctx context.Context, fail func(error)) {
	defer func() {
		c.manager.setUp(false, func(*driverState) {})
		if s := c.manager.session(); s != nil {
			s.end()
		}
	}()
	delay := connectRetryInitial
	for ctx.Err() == nil {
		spec := c.manager.get().spec
		dialling, giveUp := c.manager.while(ctx, func(s driverState) bool { return s.isReachedAs(spec) })
		s, err := c.connect(dialling, spec)
		giveUp()
		began := time.Now()
		if err == nil {
			c.use(ctx, fail, s, spec)
		} else if ctx.Err() == nil && c.manager.get().isReachedAs(spec) {
			c.manager.update(func(s *driverState) { s.setError(err, time.Now()) })
			if c.log.IsDue(err.Error(), time.Now()) {
				klog.FromContext(ctx).Info("Failed to connect to driver, will retry", "endpoint", spec.Endpoint, "err", err)
			}
		}
		if err == nil && time.Since(began) > steadySession {
			delay = connectRetryInitial
		}
		// Also after a session: a driver that answers and hangs up must not be dialled all the time.
		end := time.Now().Add(delay)
		c.manager.await(ctx, func(s driverState) (time.Duration, bool) {
			left := time.Until(end)
			return left, left <= 0 || !s.isReachedAs(spec)
		})
		delay = min(2*delay, connectRetryMax)
	}
}
