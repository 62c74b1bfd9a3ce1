package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// redialAfter is how long the Probes on a connection must have failed before a second
// connection is tried, and how long after a failed try the next one follows. The process
// behind the first one may hang while another one behind the same endpoint is well: a
// Service with several replicas, a proxy, a socket that was replaced.
const redialAfter = 30 * time.Second

// sessionUse is the use of one session, and of those that take its place because the
// driver does not answer well. A session that is replaced takes no call any more; its
// calls in flight go on until they end by themselves.
type sessionUse struct {
	connection *connection
	value      registry.Driver // how the driver is reached
	said       *complaint

	live   *liveSession
	probe  *attempt[struct{}] // nil: none is in flight
	redial *attempt[Session]  // nil: none is in flight
	calls  sync.WaitGroup     // the goroutines of probes and redials

	failures  int       // of Probes in a row
	waitsFrom time.Time // the first of these failures, or the last redial if that was later
	redialErr error     // of the last redial since the driver was well; nil for none
}

// use works with a session until it has ended, the driver is to be reached in another way,
// or ctx ends. Nothing that the driver does not answer keeps it from noticing that.
func (c *connection) use(ctx context.Context, s Session, value registry.Driver, said *complaint) {
	u := &sessionUse{connection: c, value: value, said: said}
	defer u.end()
	u.begin(ctx, s)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := time.Now().Add(c.desired.settings().Probe.Interval); ; { // next: the next Probe
		_, changed := c.desired.get()
		if !c.isReachedAs(value) {
			c.condition.enter(Connecting, "the driver is to be reached in another way", time.Now())
			return
		}
		var due <-chan time.Time
		if u.probe == nil {
			timer.Reset(time.Until(next))
			due = timer.C
		}
		select {
		case <-u.live.Done():
			c.condition.enter(Lost, "the connection has ended", time.Now())
			if said.due("lost", time.Now()) {
				klog.FromContext(ctx).Info("Lost the connection to the driver", "endpoint", value.Endpoint)
			}
			return
		case <-ctx.Done():
			return
		case <-changed:
			if soonest := time.Now().Add(c.desired.settings().Probe.Interval); soonest.Before(next) {
				next = soonest
			}
		case <-due:
			u.startProbe(ctx)
		case <-u.probe.done():
			next = time.Now().Add(u.endProbe(ctx))
		case <-u.redial.done():
			if u.endRedial(ctx) {
				next = time.Now().Add(c.desired.settings().Probe.Interval)
			}
		}
	}
}

// begin puts a session to use, in the place of the one before if there is one.
func (u *sessionUse) begin(ctx context.Context, s Session) {
	before := u.live
	u.live = &liveSession{Session: s, since: time.Now()}
	u.failures, u.redialErr = 0, nil
	u.probe.stop()
	u.probe = nil
	u.connection.session.Store(u.live)
	u.connection.setUp(true)
	u.connection.condition.enter(Ready, "", time.Now())
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Connected to the driver", "endpoint", u.value.Endpoint, "version", s.Info().Version)
	if before != nil {
		logger.Info("Using a new connection to the driver, which did not answer well on the one before; calls in flight go on there", "endpoint", u.value.Endpoint)
		before.end()
	}
}

// end ends the use of the session that is in use, and waits for what is being tried.
func (u *sessionUse) end() {
	u.connection.setUp(false)
	if u.live != nil {
		u.live.end()
	}
	u.probe.stop()
	u.dropRedial()
	u.calls.Wait()
}

// startProbe asks the driver whether it is well.
func (u *sessionUse) startProbe(ctx context.Context) {
	s, timeout := u.live.Session, u.connection.desired.settings().Probe.Timeout
	u.probe = try(ctx, &u.calls, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return struct{}{}, s.Probe(ctx)
	})
}

// endProbe takes the answer of the driver, and returns how long to wait before the next
// Probe. While the driver is not well, its queue waits; calls in flight go on.
func (u *sessionUse) endProbe(ctx context.Context) time.Duration {
	c, now, interval := u.connection, time.Now(), u.connection.desired.settings().Probe.Interval
	_, err := u.probe.result()
	u.probe = nil
	switch {
	case err == nil:
		u.failures, u.redialErr = 0, nil
		u.dropRedial()
		if up, _, _ := c.isUp(); !up {
			c.setUp(true)
			c.condition.enter(Ready, "", now)
		}
		return interval
	case isDone(u.live) || ctx.Err() != nil:
		return interval // there is nobody to be asked any more
	}
	if u.failures++; u.failures == 1 {
		u.waitsFrom = now
	}
	soon := min(connectRetryMax, interval)
	// A driver under load may be late once. One that says that it is not ready is clear.
	if u.failures < 2 && !errors.Is(err, csiclient.ErrNotReady) {
		return soon
	}
	if u.redialErr != nil && u.redialErr.Error() != err.Error() {
		err = fmt.Errorf("%w; a second connection failed too: %v", err, u.redialErr)
	}
	c.setUp(false)
	c.condition.failed(err, now)
	if u.said.due(err.Error(), now) {
		klog.FromContext(ctx).Info("The driver is not well, its volumes wait", "err", err)
	}
	if u.redial == nil && now.Sub(u.waitsFrom) >= redialAfter {
		u.redial = try(ctx, &u.calls, func(ctx context.Context) (Session, error) { return c.dial(ctx, u.value) })
	}
	return soon
}

// endRedial takes the second connection to use if the driver is well on it, and reports
// whether it has.
func (u *sessionUse) endRedial(ctx context.Context) bool {
	s, err := u.redial.result()
	u.redial = nil
	if err != nil {
		u.waitsFrom, u.redialErr = time.Now(), err // told with the next Probe that fails
		return false
	}
	u.begin(ctx, s)
	return true
}

// dropRedial gives up a second connection, if one is tried: it is not needed any more.
func (u *sessionUse) dropRedial() {
	dropped := u.redial
	if dropped == nil {
		return
	}
	u.redial = nil
	dropped.cancel()
	u.calls.Go(func() {
		<-dropped.ended
		if dropped.err == nil && dropped.panicked == nil {
			dropped.value.Close()
		}
	})
}
