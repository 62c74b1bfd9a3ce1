package driver

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// The pauses between two tries to connect: short at first, and never so long that users would notice.
	connectRetryInitial = 200 * time.Millisecond
	connectRetryMax     = 2 * time.Second
	// steadySession is how long a session must last for the pauses to start at the shortest again.
	steadySession = 10 * time.Second
	// probeTimeout bounds a Probe.
	probeTimeout = 10 * time.Second
	// silentAfter is how long a driver may answer nothing on a connection. Then the connection takes no new call, and the driver is
	// dialled anew: the process behind the connection may hang while another process behind the same endpoint works, as with a
	// Service with several replicas, a proxy, or a socket that was replaced. Calls in flight go on until they end.
	silentAfter = 30 * time.Second
)

// Session is a verified connection to a driver: *csiclient.Session.
type Session interface {
	attach.Controller
	ListVolumes(ctx context.Context, pageSize int) (listed csiclient.Published, took time.Duration, err error)
	// Probe asks whether the driver is ready. It returns csiclient.ErrNotReady if the driver answers that it
	// is not.
	Probe(context.Context) error
	Info() csiclient.Info
	// Ended returns a context that ends when the Session takes no further call. Calls in flight may go on.
	Ended() context.Context
	Close()
}

// liveSession is the session in use, or one that was in use. Its texts are safe to store, log and show, except the errors
// of the calls with secrets: attach.Attacher knows which secrets these had.
type liveSession struct {
	Session
	redactor *attach.Redactor
	info     csiclient.Info // with a redacted version
	since    time.Time      // when its use began

	answered   atomic.Bool // the driver has answered a call since use reset it
	mu         sync.Mutex
	unanswered map[queue.Key]time.Time // when the first call of each item since then began; guarded by mu
}

func newLiveSession(s Session, redactor *attach.Redactor) *liveSession {
	info := s.Info()
	info.Version = redactor.Text(info.Version, csiclient.MaxVersion)
	return &liveSession{Session: s, redactor: redactor, info: info, since: time.Now(), unanswered: map[queue.Key]time.Time{}}
}

// connect connects to the driver once. Its errors are safe to store, log and show.
func (m *Manager) connect(ctx context.Context, d registry.Driver) (*liveSession, error) {
	s, err := m.options.Connect(ctx, d)
	if err != nil {
		return nil, m.Redactor.Error(err)
	}
	return newLiveSession(s, m.Redactor), nil
}

// Info implements Session.
func (s *liveSession) Info() csiclient.Info { return s.info }

// Probe implements Session.
func (s *liveSession) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return s.redactor.Error(s.Session.Probe(ctx))
}

// ListVolumes implements Session.
func (s *liveSession) ListVolumes(ctx context.Context, pageSize int) (csiclient.Published, time.Duration, error) {
	published, took, err := s.Session.ListVolumes(ctx, pageSize)
	return published, took, s.redactor.Error(err)
}

// Since implements reconcile.Session.
func (s *liveSession) Since() time.Time { return s.since }

// CallBegins implements reconcile.Session.
func (s *liveSession) CallBegins(key queue.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unanswered[key].IsZero() {
		s.unanswered[key] = time.Now()
	}
}

// Answered implements reconcile.Session.
func (s *liveSession) Answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered.Store(true)
	clear(s.unanswered)
}

// UnansweredSince implements reconcile.Session. After the session has ended it returns zero. A call does not count any more when has
// reports that its item is gone: a driver without work would count as unresponsive until its next answer, which may be days later.
func (s *liveSession) UnansweredSince(has func(queue.Key) bool) (since time.Time) {
	if s.Ended().Err() != nil {
		return since
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.unanswered, func(key queue.Key, _ time.Time) bool { return !has(key) })
	for _, begun := range s.unanswered {
		if since.IsZero() || begun.Before(since) {
			since = begun
		}
	}
	return since
}

// stayConnected keeps the driver connected until ctx ends, also while another process works for it: a takeover must not
// cost a dial.
func (m *Manager) stayConnected(ctx context.Context) {
	pause := connectRetryInitial
	for ctx.Err() == nil {
		began, spec := time.Now(), m.get().spec
		reached, end := m.while(ctx, func(s state) bool { return s.isReachedAs(spec) })
		s, err := m.connect(reached, spec)
		if err == nil {
			m.use(reached, s, spec)
		} else if reached.Err() == nil {
			m.update(func(s *state) { s.setError(err, time.Now()) })
		}
		if time.Since(began) > steadySession {
			pause = connectRetryInitial
		}
		// Also after a session: a driver that answers and hangs up must not be dialled all the time.
		reconcile.Sleep(reached, pause)
		end()
		pause = min(2*pause, connectRetryMax)
	}
}

// use keeps a session in use until it has ended, the driver answers nothing on it, or ctx ends: as soon as the driver is to be
// reached in another way than the spec says. It probes the driver meanwhile. While Probes fail the driver's queue waits; calls in flight go on.
func (m *Manager) use(ctx context.Context, s *liveSession, spec registry.Driver) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(s.Ended(), end)()
	logger := klog.FromContext(ctx).WithValues("endpoint", spec.Endpoint)
	defer func() {
		m.setUp(false, func(state *state) {
			switch {
			case s.Ended().Err() != nil:
				state.connection, state.connectionReason = status.StateLost, "the connection has ended"
			case !state.isReachedAs(spec):
				state.connection, state.connectionReason = status.StateConnecting, "the driver is to be reached in another way"
			}
		})
		s.Close()
	}()
	m.setUp(true, func(state *state) { state.session = s })
	failures := 0       // of Probes in a row
	var asked time.Time // the first Probe since the last answer; zero: there is none
	for ctx.Err() == nil {
		last := time.Now()
		m.await(ctx, func(state state) (time.Duration, bool) {
			pause := state.spec.Probe.Interval
			if failures > 0 {
				pause = min(pause, connectRetryMax)
			}
			left := pause - time.Since(last)
			return left, left <= 0
		})
		if asked.IsZero() {
			asked = time.Now()
			s.answered.Store(false)
		}
		err, now := s.Probe(ctx), time.Now()
		switch {
		case ctx.Err() != nil:
			continue
		case err == nil:
			failures, asked = 0, time.Time{}
			m.setUp(true, func(*state) {})
			continue
		case grpcstatus.Code(err) != codes.DeadlineExceeded || s.answered.Load(): // an error is an answer
			asked = time.Time{}
		}
		// A driver under load may answer late once. The answer "not ready" counts at once.
		if failures++; failures > 1 || errors.Is(err, csiclient.ErrNotReady) {
			m.setUp(false, func(state *state) { state.setError(err, now) })
		}
		if !asked.IsZero() && now.Sub(asked) >= silentAfter {
			logger.Info("Driver answers nothing on its connection, connecting anew; calls in flight continue")
			return
		}
	}
}
