package hub

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
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

// liveSession is the session in use, or one that was in use.
type liveSession struct {
	Session
	since time.Time   // when its use began
	ended atomic.Bool // it takes no further call; calls in flight may end

	mu         sync.Mutex         // guards all that follows
	answered   time.Time          // when the driver last answered a call
	open       int                // calls that have not returned
	unanswered time.Time          // the first call began after the last answer; zero: there is none
	owed       map[queue.Key]bool // items whose last call has ended without an answer
}

// begin notes that a call begins. has reports whether an item is in the queue.
func (s *liveSession) begin(has func(queue.Key) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unanswered.IsZero() || !s.owes(has) {
		s.unanswered = time.Now()
	}
	s.open++
}

// endCall notes that the call of an item has returned.
func (s *liveSession) endCall(key queue.Key, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	switch {
	case answered:
		s.answered, s.unanswered, s.owed = time.Now(), time.Time{}, nil
	case s.owed == nil:
		s.owed = map[queue.Key]bool{key: true}
	default:
		s.owed[key] = true
	}
}

// owes reports whether an answer is still of use: a call is in flight, or its item waits for the next try. A driver
// without work would otherwise count as unresponsive until the next answer, which may be days later. The caller has
// locked mu.
func (s *liveSession) owes(has func(queue.Key) bool) bool {
	maps.DeleteFunc(s.owed, func(key queue.Key, _ bool) bool { return !has(key) })
	return s.open > 0 || len(s.owed) > 0
}

// unansweredSince returns when the first call began after the driver's last answer, zero if it has answered since or the session
// has ended. s may be nil.
func (s *liveSession) unansweredSince(has func(queue.Key) bool) time.Time {
	if s == nil || s.ended.Load() {
		return time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owes(has) {
		return time.Time{}
	}
	return s.unanswered
}

// hasAnsweredSince reports whether the driver has answered a call since a time.
func (s *liveSession) hasAnsweredSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.answered.Before(t)
}

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

// redactedSession is a Session whose texts are safe to store, log and show, except the errors of the calls with
// secrets: attach.Attacher knows which secrets these had.
type redactedSession struct {
	Session
	redactor *attach.Redactor
	info     csiclient.Info // with a redacted version
}

// connect connects to the driver once. Its errors are safe to store, log and show.
func (m *manager) connect(ctx context.Context, d registry.Driver) (Session, error) {
	s, err := m.hub.options.Connect(ctx, d)
	if err != nil {
		return nil, m.redactor.Error(err)
	}
	info := s.Info()
	info.Version = m.redactor.Text(info.Version, csiclient.MaxVersion)
	return redactedSession{s, m.redactor, info}, nil
}

// Info implements Session.
func (s redactedSession) Info() csiclient.Info { return s.info }

// Probe implements Session.
func (s redactedSession) Probe(ctx context.Context) error {
	return s.redactor.Error(s.Session.Probe(ctx))
}

// ListVolumes implements Session.
func (s redactedSession) ListVolumes(ctx context.Context, pageSize int) (csiclient.Published, time.Duration, error) {
	published, took, err := s.Session.ListVolumes(ctx, pageSize)
	return published, took, s.redactor.Error(err)
}
