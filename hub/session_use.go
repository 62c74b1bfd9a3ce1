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
	*connection
	spec registry.Driver // how the driver is reached

	live   *liveSession
	probe  *attempt       // nil: none is in flight
	redial *attempt       // nil: none is in flight
	calls  sync.WaitGroup // the goroutines of probes and redials
	fail   func(error)    // takes a panic in them

	failures  int       // of Probes in a row
	waitsFrom time.Time // the first of these failures, or the last redial if that was later
	redialErr error     // of the last redial since the driver was well; nil for none
}

// attempt is a Probe or a redial in flight.
type attempt struct {
	cancel  context.CancelFunc
	ended   chan struct{} // closed when there is an answer
	session Session       // of a redial, with the answer
	err     error         // with the answer
}

// errPanicked stands for the answer that a panic has prevented.
var errPanicked = errors.New("this has panicked")

// try calls f in a goroutine of its own.
func (u *sessionUse) try(ctx context.Context, f func(context.Context) (Session, error)) *attempt {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{cancel: cancel, ended: make(chan struct{}), err: errPanicked}
	goSafely(&u.calls, u.fail, func() {
		defer close(a.ended)
		defer cancel()
		a.session, a.err = f(ctx)
	})
	return a
}

// answered returns a channel that is closed when there is an answer, nil for no attempt.
func (a *attempt) answered() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.ended
}

// use works with a session until it has ended, the driver is to be reached in another way,
// or ctx ends. Nothing that the driver does not answer keeps it from noticing that.
func (c *connection) use(ctx context.Context, fail func(error), s Session, spec registry.Driver) {
	ctx, cancel := context.WithCancel(ctx)
	u := &sessionUse{connection: c, spec: spec, fail: fail}
	defer u.end(cancel)
	u.begin(ctx, s)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := time.Now().Add(c.manager.settings().Probe.Interval); ; { // next: the next Probe
		state, changed := c.manager.watch()
		if !state.isReachedAs(spec) {
			c.manager.update(func(s *driverState) { s.setConnection(Connecting, "the driver is to be reached in another way") })
			return
		}
		// The settings may have changed: the next Probe may be due sooner.
		if soonest := time.Now().Add(state.spec.Probe.Interval); soonest.Before(next) {
			next = soonest
		}
		var due <-chan time.Time
		if u.probe == nil {
			timer.Reset(time.Until(next))
			due = timer.C
		}
		select {
		case <-u.live.Done():
			c.manager.update(func(s *driverState) { s.setConnection(Lost, "the connection has ended") })
			if c.log.isDue("lost", time.Now()) {
				klog.FromContext(ctx).Info("Lost the connection to the driver", "endpoint", spec.Endpoint)
			}
			return
		case <-ctx.Done():
			return
		case <-changed:
		case <-due:
			u.startProbe(ctx)
		case <-u.probe.answered():
			next = time.Now().Add(u.endProbe(ctx))
		case <-u.redial.answered():
			if u.endRedial(ctx) {
				next = time.Now().Add(state.spec.Probe.Interval)
			}
		}
	}
}

// begin puts a session to use, in the place of the one before if there is one.
func (u *sessionUse) begin(ctx context.Context, s Session) {
	before := u.live
	u.live = &liveSession{Session: s, since: time.Now()}
	u.failures, u.redialErr = 0, nil
	if u.probe != nil {
		u.probe.cancel()
		u.probe = nil
	}
	u.manager.setUp(true, func(s *driverState) {
		s.session = u.live
		s.setConnection(Ready, "")
	})
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Connected to the driver", "endpoint", u.spec.Endpoint, "version", s.Info().Version)
	if before != nil {
		logger.Info("Using a new connection to the driver, which did not answer well on the one before; calls in flight go on there", "endpoint", u.spec.Endpoint)
		before.end()
	}
}

// end ends the use of the session that is in use, and waits for what is being tried.
func (u *sessionUse) end(cancel context.CancelFunc) {
	u.manager.setUp(false, func(*driverState) {})
	u.live.end()
	u.dropRedial()
	cancel()
	u.calls.Wait()
}

// startProbe asks the driver whether it is well.
func (u *sessionUse) startProbe(ctx context.Context) {
	s, timeout := u.live.Session, u.manager.settings().Probe.Timeout
	u.probe = u.try(ctx, func(ctx context.Context) (Session, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return nil, s.Probe(ctx)
	})
}

// endProbe takes the answer of the driver, and returns how long to wait before the next
// Probe. While the driver is not well, its queue waits; calls in flight go on.
func (u *sessionUse) endProbe(ctx context.Context) time.Duration {
	now, state := time.Now(), u.manager.get()
	interval, err := state.spec.Probe.Interval, u.probe.err
	u.probe = nil
	switch {
	case err == nil:
		u.failures, u.redialErr = 0, nil
		u.dropRedial()
		if !state.up {
			u.manager.setUp(true, func(s *driverState) { s.setConnection(Ready, "") })
		}
		return interval
	case isDone(u.live) || ctx.Err() != nil:
		return interval // there is nobody to be asked any more
	}
	if u.failures++; u.failures == 1 {
		u.waitsFrom = now
	}
	soon := min(connectRetryMax, interval)
	// A driver under load may be late once. A driver that reports that it is not ready is clear.
	if u.failures < 2 && !errors.Is(err, csiclient.ErrNotReady) {
		return soon
	}
	if u.redialErr != nil && u.redialErr.Error() != err.Error() {
		err = fmt.Errorf("%w; a second connection failed too: %v", err, u.redialErr)
	}
	u.manager.setUp(false, func(s *driverState) { s.setError(err, now) })
	if u.log.isDue(err.Error(), now) {
		klog.FromContext(ctx).Info("The driver is not well, its volumes wait", "err", err)
	}
	if u.redial == nil && now.Sub(u.waitsFrom) >= redialAfter {
		u.redial = u.try(ctx, func(ctx context.Context) (Session, error) { return u.dial(ctx, u.spec) })
	}
	return soon
}

// endRedial takes the second connection to use if the driver is well on it, and reports
// whether it has.
func (u *sessionUse) endRedial(ctx context.Context) bool {
	s, err := u.redial.session, u.redial.err
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
		if <-dropped.ended; dropped.err == nil {
			dropped.session.Close()
		}
	})
}
