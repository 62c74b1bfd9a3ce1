package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// silentAfter is how long a driver may answer nothing on a connection. Then the connection takes no new call, and the driver is
// dialled anew: the process behind the connection may hang while another process behind the same endpoint works, as with a
// Service with several replicas, a proxy, or a socket that was replaced. Calls in flight go on until they end.
const silentAfter = 30 * time.Second

// sessionUse is the use of one session.
type sessionUse struct {
	*connection
	spec registry.Driver // that the session was made with

	live   *liveSession
	probe  chan error     // takes the answer of the Probe in flight; nil: there is none
	probes sync.WaitGroup // their goroutines
	fail   func(error)    // takes a panic in them

	failures int       // of Probes in a row
	asked    time.Time // the first Probe since the last answer; zero: there is none
}

// use keeps a session in use until it has ended, the endpoint or TLS of the driver changes, or ctx ends. It notices
// each of these at once, also while the driver does not answer.
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
			if c.log.IsDue("lost", time.Now()) {
				klog.FromContext(ctx).Info("Lost connection to driver, reconnecting", "endpoint", spec.Endpoint)
			}
			return
		case <-ctx.Done():
			return
		case <-changed:
		case <-due:
			u.startProbe(ctx)
		case err := <-u.probe:
			next = time.Now().Add(u.endProbe(ctx, err))
			if u.isSilent() {
				klog.FromContext(ctx).Info("Driver answers nothing on its connection, connecting anew; calls in flight continue", "endpoint", spec.Endpoint)
				return
			}
		}
	}
}

// begin takes a session into use.
func (u *sessionUse) begin(ctx context.Context, s Session) {
	u.live = &liveSession{Session: s, since: time.Now()}
	u.manager.setUp(true, func(s *driverState) {
		s.session = u.live
		s.setConnection(Ready, "")
	})
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Connected to driver", "endpoint", u.spec.Endpoint, "version", s.Info().Version)
	all := func() []*storagev1.VolumeAttachment { return u.manager.cluster.AttachmentsOfDriver(u.manager.name) }
	if n := u.manager.decider().RecordedCalls(all); n > 0 && u.capabilityLog.IsDue("", time.Now()) {
		logger.Info("Driver has no PUBLISH_UNPUBLISH_VOLUME, but VolumeAttachments record calls to it: check that the endpoint is that of its controller",
			"endpoint", u.spec.Endpoint, "volumeAttachments", n)
	}
}

// end ends the session that is in use, and waits for its Probe.
func (u *sessionUse) end(cancel context.CancelFunc) {
	u.manager.setUp(false, func(*driverState) {})
	u.live.end()
	cancel()
	u.probes.Wait()
}

// probeTimeout bounds a Probe.
const probeTimeout = 10 * time.Second

// startProbe starts a Probe of the driver in a goroutine of its own.
func (u *sessionUse) startProbe(ctx context.Context) {
	if u.asked.IsZero() {
		u.asked = time.Now()
	}
	answer, s := make(chan error, 1), u.live.Session
	u.probe = answer
	panics.Go(&u.probes, u.fail, func() {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		answer <- s.Probe(ctx)
	})
}

// isSilent reports whether the driver has answered neither a Probe nor a call on the session for silentAfter.
func (u *sessionUse) isSilent() bool {
	return !u.asked.IsZero() && time.Since(u.asked) >= silentAfter && !u.live.hasAnsweredSince(u.asked)
}

// endProbe takes the answer of a Probe, and returns the pause before the next Probe. While Probes fail the
// driver's queue waits; calls in flight go on.
func (u *sessionUse) endProbe(ctx context.Context, err error) time.Duration {
	now, state := time.Now(), u.manager.get()
	interval := state.spec.Probe.Interval
	u.probe = nil
	switch {
	case err == nil:
		u.failures, u.asked = 0, time.Time{}
		if !state.up {
			u.manager.setUp(true, func(s *driverState) { s.setConnection(Ready, "") })
		}
		return interval
	case isDone(u.live) || ctx.Err() != nil:
		return interval // use returns now
	}
	u.failures++
	if status.Code(err) != codes.DeadlineExceeded || u.live.hasAnsweredSince(u.asked) { // an error is an answer
		u.asked = time.Time{}
	}
	soon := min(connectRetryMax, interval)
	// A driver under load may answer late once. The answer "not ready" counts at once.
	if u.failures < 2 && !errors.Is(err, csiclient.ErrNotReady) {
		return soon
	}
	u.manager.setUp(false, func(s *driverState) { s.setError(err, now) })
	if u.log.IsDue(err.Error(), now) {
		klog.FromContext(ctx).Info("Driver is unhealthy, its volumes wait", "endpoint", u.spec.Endpoint, "err", err)
	}
	return soon
}
