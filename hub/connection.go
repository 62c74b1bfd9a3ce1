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
	Info() csiclient.Info
	Done() <-chan struct{}
	Close()
}

// ConnectFunc connects to a driver once, as csiclient.Connect does.
type ConnectFunc func(ctx context.Context, name string, endpoint registry.Endpoint) (Session, error)

// errAway says that a call was not made, or was cut off, because the driver is not
// connected.
var errAway = errors.New("the driver is not connected")

func isAway(err error) bool { return errors.Is(err, errAway) }

// stayConnected keeps a session to the driver until ctx ends. Work starts only
// while there is one.
func (d *driver) stayConnected(ctx context.Context) {
	logger := klog.FromContext(ctx)
	var c complaint
	delay := connectRetryInitial
	for ctx.Err() == nil {
		s, err := d.connect(ctx, d.value.Name, d.value.Endpoint)
		if err != nil {
			problem := err.Error()
			d.problem.Store(&problem)
			if ctx.Err() == nil && c.due(problem, time.Now()) {
				logger.Info("Cannot connect to the driver, will try again for ever", "endpoint", d.value.Endpoint, "err", problem)
			}
			sleep(ctx, delay)
			delay = min(2*delay, connectRetryMax)
			continue
		}
		delay = connectRetryInitial
		d.begin(ctx, s)
		select {
		case <-ctx.Done():
			return // calls in flight still use the session
		case <-s.Done():
			d.queue.Shut()
			s.Close()
			if c.due("lost", time.Now()) {
				logger.Info("Lost the connection to the driver", "endpoint", d.value.Endpoint)
			}
		}
	}
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
func (d *driver) begin(ctx context.Context, s Session) {
	logger := klog.FromContext(ctx)
	first := d.session.Swap(&liveSession{s}) == nil
	if first {
		d.routes.open(d)
	}
	d.backfill()
	d.queue.Open()
	if info := s.Info(); first {
		logger.Info("Serving the driver", "endpoint", d.value.Endpoint, "version", info.Version, "attaches", info.Capabilities.PublishUnpublish)
	} else {
		logger.V(2).Info("Connected to the driver again", "endpoint", d.value.Endpoint, "version", info.Version)
	}
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
func away(s Session, err error) error {
	if status.Code(err) != codes.Unavailable {
		return err
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
