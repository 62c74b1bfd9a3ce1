package hub

import (
	"context"
	"errors"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// A driver that is away is looked for this often: soon at first, and never so
	// rarely that its users would notice.
	connectRetryInitial = 200 * time.Millisecond
	connectRetryMax     = 2 * time.Second
	// steadySession is how long a session lasts that was worth connecting for.
	steadySession = 10 * time.Second
	// How often a driver that cannot be reached is logged: seldom while it is the same
	// thing over and over, sooner when it is another one.
	complainSame  = 10 * time.Minute
	complainOther = time.Minute
	// settleTime is how long the end of a connection may take to show after a call
	// has failed because of it.
	settleTime = 100 * time.Millisecond
)

// Session is a verified connection to a driver: *csiclient.Session.
type Session interface {
	attach.Controller
	ListVolumes(context.Context, csiclient.ListOptions) (csiclient.Published, error)
	// Probe asks whether the driver is ready; csiclient.ErrNotReady says that it is not.
	Probe(context.Context) error
	Info() csiclient.Info
	Done() <-chan struct{}
	Close()
}

// ConnectFunc connects to a driver once, as csiclient.Connect does.
type ConnectFunc func(ctx context.Context, d registry.Driver) (Session, error)

// errAway says that a call was not made, or was cut off, because the driver is not
// connected.
var errAway = errors.New("the driver is not connected")

func isAway(err error) bool { return errors.Is(err, errAway) }

// stayConnected keeps a session to the driver until ctx ends. Work starts only
// while there is one.
func (d *driver) stayConnected(ctx context.Context) {
	var c complaint
	delay := connectRetryInitial
	for ctx.Err() == nil {
		attemptCtx, giveUp := context.WithCancel(ctx)
		value, _ := d.desired.get()
		d.attempt.Store(&attempt{value: value, giveUp: giveUp})
		d.redial() // for a change that came before the attempt was known
		s, err := d.connect(attemptCtx, value)
		began := time.Now()
		if err == nil {
			d.use(ctx, attemptCtx, s, value, &c)
		} else if attemptCtx.Err() == nil {
			d.cannotConnect(ctx, value, err, &c)
		}
		if err == nil && time.Since(began) > steadySession {
			delay = connectRetryInitial
		}
		// Also after a session: one that answers and hangs up is not to be asked all the time.
		sleep(attemptCtx, delay)
		delay = min(2*delay, connectRetryMax)
		giveUp()
	}
}

// attempt is a try to connect, with the session that comes of it.
type attempt struct {
	value  registry.Driver
	giveUp context.CancelFunc
}

// redial ends the attempt of the moment if the driver is to be reached in another way
// by now.
func (d *driver) redial() {
	value, _ := d.desired.get()
	if a := d.attempt.Load(); a != nil && dialled(a.value) != dialled(value) {
		a.giveUp()
	}
}

// cannotConnect notes a failed attempt.
func (d *driver) cannotConnect(ctx context.Context, value registry.Driver, err error, c *complaint) {
	d.condition.failed(err, time.Now())
	if c.due(err.Error(), time.Now()) {
		klog.FromContext(ctx).Info("Cannot connect to the driver, will try again for ever", "endpoint", value.Endpoint, "err", err)
	}
}

// use works with a session until it has ended, the attempt or ctx.
func (d *driver) use(ctx, attempt context.Context, s Session, value registry.Driver, c *complaint) {
	live := d.begin(ctx, s, value)
	defer func() {
		d.queue.Shut()
		if ctx.Err() == nil { // else what was begun still uses it
			live.end()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0 // of probes in a row
	for wait := d.settings().Probe.Interval; ; {
		timer.Reset(wait)
		_, changed := d.desired.get()
		select {
		case <-s.Done():
			d.condition.enter(Lost, "the connection has ended", time.Now())
			if c.due("lost", time.Now()) {
				klog.FromContext(ctx).Info("Lost the connection to the driver", "endpoint", value.Endpoint)
			}
			return
		case <-attempt.Done():
			if ctx.Err() == nil {
				d.condition.enter(Connecting, "the driver is to be reached in another way", time.Now())
			}
			return
		case <-changed:
			wait = min(wait, d.settings().Probe.Interval)
		case <-timer.C:
			wait = d.probe(attempt, s, &failures, c)
		}
	}
}

// probe asks the driver whether it is well, and returns when to ask again. While it
// is not, its queue waits; calls in flight go on.
func (d *driver) probe(ctx context.Context, s Session, failures *int, c *complaint) time.Duration {
	settings := d.settings().Probe
	ctx, cancel := context.WithTimeout(ctx, settings.Timeout)
	defer cancel()
	err := s.Probe(ctx)
	switch {
	case err == nil:
		*failures = 0
		if d.condition.get().State != Ready {
			d.queue.Open()
			d.condition.enter(Ready, "", time.Now())
		}
		return settings.Interval
	case isDone(s) || errors.Is(context.Cause(ctx), context.Canceled):
		return settings.Interval // there is nobody to be asked any more
	}
	// A driver under load may be late once. One that says that it is not ready is clear.
	if *failures++; *failures < 2 && !errors.Is(err, csiclient.ErrNotReady) {
		return min(connectRetryMax, settings.Interval)
	}
	d.queue.Shut()
	d.condition.failed(err, time.Now())
	if c.due(err.Error(), time.Now()) {
		klog.FromContext(ctx).Info("The driver is not well, its volumes wait", "err", err)
	}
	return min(connectRetryMax, settings.Interval)
}

// complaint keeps a driver that is away from flooding the log.
type complaint struct {
	what string
	when time.Time
}

// due says whether something is to be logged now, and takes it as logged if so.
func (c *complaint) due(what string, now time.Time) bool {
	quiet := complainOther
	if what == c.what {
		quiet = complainSame
	}
	if !c.when.IsZero() && now.Sub(c.when) < quiet {
		return false
	}
	c.what, c.when = what, now
	return true
}

// begin puts a session to use. What the driver can do may have changed since the
// last one, so all its VolumeAttachments are looked at again.
func (d *driver) begin(ctx context.Context, s Session, value registry.Driver) *liveSession {
	live := &liveSession{Session: s}
	first := d.session.Swap(live) == nil
	if first {
		d.routes.open(d)
	}
	d.backfill()
	d.queue.Open()
	d.condition.enter(Ready, "", time.Now())
	logger, info := klog.FromContext(ctx), s.Info()
	if first {
		logger.Info("Serving the driver", "endpoint", value.Endpoint, "version", info.Version, "attaches", info.Capabilities.PublishUnpublish)
	} else {
		logger.V(2).Info("Connected to the driver again", "endpoint", value.Endpoint, "version", info.Version)
	}
	return live
}

// ControllerPublishVolume implements attach.Controller on the session of the moment.
func (d *driver) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	s := d.session.Load()
	response, err := s.ControllerPublishVolume(ctx, req)
	return response, away(s, err)
}

// ControllerUnpublishVolume implements attach.Controller on the session of the moment.
func (d *driver) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	s := d.session.Load()
	response, err := s.ControllerUnpublishVolume(ctx, req)
	return response, away(s, err)
}

// away tells a driver that says Unavailable from one whose connection has ended.
func away(s *liveSession, err error) error {
	if status.Code(err) != codes.Unavailable {
		return err
	}
	if s.ended.Load() {
		return errors.Join(errAway, err)
	}
	settle := time.NewTimer(settleTime)
	defer settle.Stop()
	select {
	case <-s.Done():
		return errors.Join(errAway, err)
	case <-settle.C:
		return err
	}
}

// sleep waits, less when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
