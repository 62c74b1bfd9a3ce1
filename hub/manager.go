package hub

import (
	"context"
	"math"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// manager serves one driver for as long as the registry lists it. It owns what is known about the
// driver: one value under one mutex, with one channel that tells of changes. Whoever waits for a
// change reads the whole value again and compares what it needs.
type manager struct {
	memory
	hub      *Hub
	name     string // of the driver
	cluster  *cache.Cluster
	counters *counters
	logger   klog.Logger
	retire   context.CancelFunc
	ended    chan struct{} // closed when the driver has drained

	mu      sync.Mutex
	state   driverState     // guarded by mu
	changed chan struct{}   // closed at the next change of state; guarded by mu
	scopes  map[*scope]bool // guarded by mu
}

// memory is what this process remembers of a driver's volumes: what it has published, and what it has
// written that the caches do not show yet. It outlives the managers of the driver: a driver that
// is served again at once would else be called for what was done last.
type memory struct {
	table   *volume.Table
	overlay *cache.Overlay
}

func (h *Hub) newMemory(logger klog.Logger, driver string) memory {
	return memory{table: volume.NewTable(attach.Finalizer(driver)), overlay: cache.NewOverlay(logger, h.cluster)}
}

func (h *Hub) newManager(logger klog.Logger, spec registry.Driver, m memory) *manager {
	return &manager{
		memory:   m,
		hub:      h,
		name:     spec.Name,
		cluster:  h.cluster,
		counters: newCounters(h.options.Metrics.Driver(spec.Name)),
		logger:   logger,
		ended:    make(chan struct{}),
		state:    newDriverState(spec, time.Now()),
		changed:  make(chan struct{}),
		scopes:   map[*scope]bool{},
	}
}

// get returns what is known now.
func (m *manager) get() driverState {
	s, _ := m.watch()
	return s
}

// watch returns what is known now, and a channel that is closed when that changes.
func (m *manager) watch() (driverState, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, m.changed
}

// settings returns the driver's settings of the moment.
func (m *manager) settings() registry.Settings { return m.get().spec.Settings }

// session returns the latest session, which may have ended; nil if there was none yet.
func (m *manager) session() *liveSession { return m.get().session }

// decider returns what decisions depend on now. Without a session, capabilities are those of the last one.
func (m *manager) decider() attach.Driver {
	s := m.get()
	return attach.Driver{
		Name:          m.name,
		DefaultFSType: s.spec.DefaultFSType,
		NoAttach:      !m.cluster.AttachRequired(m.name),
		Capabilities:  s.capabilities(),
	}
}

// update has edit change what is known. It must not block.
func (m *manager) update(edit func(*driverState)) {
	if m.edit(edit) {
		m.wake()
		m.endScopes()
	}
}

// edit has edit change what is known, and reports whether that is a change for anybody.
func (m *manager) edit(edit func(*driverState)) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.state
	edit(&m.state)
	m.state.settle(before.State, time.Now())
	// Where the driver was learned, and until when it is served, is no reason for anybody to wake up: a line
	// that is added to the file moves all those below it.
	before.spec.Source, before.spec.WindDown = m.state.spec.Source, m.state.spec.WindDown
	return before != m.state
}

// wake has all who wait for a change look again.
func (m *manager) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// setSpec takes how the driver is to be served from now on, and reports whether anything but its origin
// has changed. A change ends the automatic pause: somebody has looked at the driver.
func (m *manager) setSpec(to registry.Driver) (changed bool) {
	m.update(func(s *driverState) {
		from := s.spec
		from.Source, from.WindDown = to.Source, to.WindDown
		if changed = from != to; changed {
			s.autoPause = ""
		}
		s.spec = to
	})
	return changed
}

// setUp notes whether the driver can be called, with what else edit changes. When it returns, the leader
// or the Observer has acted on it.
func (m *manager) setUp(up bool, edit func(*driverState)) {
	var before, after driverState
	m.update(func(s *driverState) {
		before = *s
		now := time.Now()
		if up != s.up {
			s.leaseOffered = s.leaseOffered && !(s.up && now.Sub(s.upSince) >= m.hub.options.LeaseDuration)
			s.up, s.upSince = up, now
		}
		edit(s)
		after = *s
	})
	switch {
	case after.leader != nil:
		after.leader.connectionChanged()
	case after.observer != nil && (up != before.up || after.session != before.session):
		after.observer.LookAtAll() // what the driver can do may have changed
	}
}

// never is longer than any process lives.
const never = time.Duration(math.MaxInt64)

// await calls look at once, at each change, and after the time that look returned last, until look
// says that it is done or ctx ends. It blocks until then.
func (m *manager) await(ctx context.Context, look func(driverState) (again time.Duration, done bool)) {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for ctx.Err() == nil {
		s, changed := m.watch()
		again, done := look(s)
		if done {
			return
		}
		timer.Reset(again)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
	}
}

// scope is a context that lasts while something holds.
type scope struct {
	holds func(driverState) bool
	end   context.CancelFunc
}

// while returns a context that ends with ctx, or as soon as holds returns false for what is known. holds must
// be pure. The caller has to call the returned function.
func (m *manager) while(ctx context.Context, holds func(driverState) bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s := &scope{holds: holds, end: cancel}
	m.mu.Lock()
	m.scopes[s] = true
	m.mu.Unlock()
	m.endScopes()
	return ctx, func() {
		m.mu.Lock()
		delete(m.scopes, s)
		m.mu.Unlock()
		cancel()
	}
}

// endScopes ends the scopes that do not hold any more.
func (m *manager) endScopes() {
	m.mu.Lock()
	var over []*scope
	for s := range m.scopes {
		if !s.holds(m.state) {
			over = append(over, s)
		}
	}
	m.mu.Unlock()
	for _, s := range over {
		s.end()
	}
}
