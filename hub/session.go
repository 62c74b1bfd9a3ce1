package hub

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Session is a verified connection to a driver: *csiclient.Session.
type Session interface {
	attach.Controller
	ListVolumes(ctx context.Context, pageSize int) (listed csiclient.Published, took time.Duration, err error)
	// Probe asks whether the driver is ready. It returns csiclient.ErrNotReady if the driver answers that it
	// is not.
	Probe(context.Context) error
	Info() csiclient.Info
	Done() <-chan struct{}
	Close()
}

// ConnectFunc connects to a driver once, as csiclient.Connect does.
type ConnectFunc func(ctx context.Context, d registry.Driver) (Session, error)

// errDisconnected means that a call was not made, or was cut off, because the connection to the driver has
// ended.
var errDisconnected = errors.New("the driver is not connected")

func isDisconnected(err error) bool { return errors.Is(err, errDisconnected) }

// liveSession is the session in use, or one that was in use.
type liveSession struct {
	Session
	since    time.Time    // when its use began
	ended    atomic.Bool  // it takes no further call; calls in flight may end
	answered atomic.Int64 // when the driver last answered a call, in nanoseconds since 1970
}

// hasAnsweredSince reports whether the driver has answered a call since a time.
func (s *liveSession) hasAnsweredSince(t time.Time) bool { return s.answered.Load() >= t.UnixNano() }

// capabilities returns the capabilities of the driver; none without a session, so s may be nil.
func (s *liveSession) capabilities() csiclient.Capabilities {
	if s == nil {
		return csiclient.Capabilities{}
	}
	return s.Info().Capabilities
}

func (s *liveSession) end() {
	s.ended.Store(true)
	s.Close()
}

func isDone(s Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
