package hub

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// manager serves one driver for as long as the registry lists it. It owns what is known about the driver:
// one value under one mutex, with one channel that is closed at every change. Loops wait for a change, and
// then read the whole value again.
type manager struct {
	memory
	hub      *Hub
	name     string // of the driver
	cluster  *cache.Cluster
	metrics  *status.DriverMetrics
	logger   klog.Logger // names the driver
	redactor *attach.Redactor
	retire   context.CancelFunc
	ended    chan struct{} // closed when the driver has drained

	connectionLog, capabilityLog loglimit.Problem // of stayConnected: that the driver cannot be called, and that it may be another one

	mu       sync.Mutex
	failures []status.Failure // of operations, the latest first; guarded by mu
	state    driverState      // guarded by mu
	changed  chan struct{}    // closed at the next change of state; guarded by mu
}

// memory is what this process remembers of a driver's volumes: its publications, and its writes that the
// caches do not show yet. It outlives the managers of the driver. Otherwise a new manager would call the
// driver once more for the operations that the last manager has just done.
type memory struct {
	table   *volume.Table
	queue   *queue.Queue
	overlay *cache.Overlay
}

func (h *Hub) newMemory(logger klog.Logger, driver string) memory {
	table := volume.NewTable(attach.Finalizer(driver))
	return memory{table: table, queue: table.Queue, overlay: cache.NewOverlay(logger, h.cluster)}
}

func (h *Hub) newManager(logger klog.Logger, spec registry.Driver, m memory) *manager {
	return &manager{
		memory:   m,
		hub:      h,
		name:     spec.Name,
		cluster:  h.cluster,
		metrics:  h.options.Metrics.Driver(spec.Name),
		logger:   logger,
		redactor: &attach.Redactor{Publications: m.table.Secrets},
		ended:    make(chan struct{}),
		state:    newDriverState(spec, time.Now()),
		changed:  make(chan struct{}),
	}
}

// get returns the present state.
func (m *manager) get() driverState {
	s, _ := m.watch()
	return s
}

// watch returns the present state, and a channel that is closed at its next change.
func (m *manager) watch() (driverState, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, m.changed
}

// keptFailures is the number of a driver's latest failures that the status shows.
const keptFailures = 10

// countFailure counts a try that failed, for the status and in the metrics. took is the time since the operation was first asked for.
func (m *manager) countFailure(err error, f status.Failure, took time.Duration) {
	m.metrics.Operation(f.Operation, status.ResultOf(err), took)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = slices.Insert(m.failures[:min(len(m.failures), keptFailures-1)], 0, f)
}

// latestFailures returns the latest failures, the latest first.
func (m *manager) latestFailures() []status.Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.failures)
}

// settings returns the driver's current settings.
func (m *manager) settings() registry.Settings { return m.get().spec.Settings }

// session returns the latest session, which may have ended; nil if there was none yet.
func (m *manager) session() *liveSession { return m.get().session }

// mayName returns an error for a Secret that volumes of the driver may not name.
func (m *manager) mayName(ref corev1.SecretReference) error {
	return m.get().spec.CheckSecret(ref.Namespace, ref.Name)
}

// readSecret reads a Secret that a volume of the driver names.
func (m *manager) readSecret(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error) {
	return attach.ReadSecret(ctx, m.hub.options.Kube.CoreV1(), m.mayName, ref)
}

// decider returns the inputs of decisions that all objects of the driver share. The capabilities are those of
// the latest session, which may have ended.
func (m *manager) decider() attach.Driver {
	s := m.get()
	return attach.Driver{Name: m.name, DefaultFSType: s.spec.DefaultFSType, NoAttach: !m.cluster.AttachRequired(m.name), Capabilities: s.session.capabilities()}
}

// update has edit change the state, and wakes the loops that wait for a change. edit must not block.
func (m *manager) update(edit func(*driverState)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.state
	edit(&m.state)
	m.state.settle(before.State, time.Now())
	// Nobody acts on a change of Source and WindDown. A line that is added to the file changes the Source of
	// all drivers below it.
	before.spec.Source, before.spec.WindDown = m.state.spec.Source, m.state.spec.WindDown
	if before != m.state {
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// setSpec replaces the spec of the driver, and reports whether anything but its Source and WindDown has
// changed.
func (m *manager) setSpec(to registry.Driver) (changed bool) {
	var otherSecrets bool
	m.update(func(s *driverState) {
		from := s.spec
		from.Source, from.WindDown = to.Source, to.WindDown
		changed = from != to
		otherSecrets = from.Secrets != to.Secrets || from.Listed != to.Listed
		s.spec = to
	})
	if otherSecrets {
		m.queue.RetryAfter(diagnosis.SecretNotAllowed)
	}
	return changed
}

// setUp notes whether the driver can be called, together with the changes of edit. When it returns, the
// leader or the Observer has acted on it.
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
		after.observer.LookAtAll() // the capabilities may have changed
	}
}

// never is longer than any process lives.
const never = time.Duration(math.MaxInt64)

// await calls look at once, at each change of the state, and after the time that look returned last. It
// blocks until look returns done, or ctx ends.
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

// while returns a context that ends with ctx, or as soon as holds returns false for the state. holds must be
// pure. The caller must call the returned function.
func (m *manager) while(ctx context.Context, holds func(driverState) bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	panics.Go(&watching, m.panicked, func() {
		defer cancel()
		m.await(ctx, func(s driverState) (time.Duration, bool) { return never, !holds(s) })
	})
	return ctx, func() { cancel(); watching.Wait() }
}

// sleep blocks for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
