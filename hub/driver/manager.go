package driver

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Options are what all Managers share.
type Options struct {
	// Kube is the client for all reads and writes. It should have no rate limit of its
	// own: one driver would delay another.
	Kube attach.Kube
	// Grace is how long calls in flight may take to end when a driver is retired or
	// the hub stops. They are cancelled then. Zero cancels at once.
	Grace time.Duration
	// Leases says which process works for which driver; nil: this process works for all.
	Leases Leases
	// LeaseNamespace is the namespace of a driver's lease if the settings name none.
	LeaseNamespace string
	// LeaseDuration is the duration of the leases. A leader that cannot call its driver for that long
	// releases the lease, so that other processes can try. It must be positive with Leases, and 0 without.
	LeaseDuration time.Duration
	// Events records Events on VolumeAttachments; nil: there are none. It must not block, and
	// bounds their rate.
	Events eventrecord.EventRecorder
	// Metrics counts operations and calls; nil: nobody sees them.
	Metrics *status.Metrics
	// Probes receives the checks of readiness and liveness; may be nil.
	Probes *status.Probes
	// Connect connects to a driver; nil means csiclient.Connect.
	Connect ConnectFunc
	// Rights asks for the rights of this process; nil: the checklist does not have them.
	Rights view.RightsFunc

	Cluster *cache.Cluster
	Routes  *reconcile.Router
	View    *view.View
}

// LeaseOf returns the lease of a driver.
func (o *Options) LeaseOf(d registry.Driver) lease.Name {
	of := d.LeaseOf()
	return lease.Name{Namespace: cmp.Or(of.Namespace, o.LeaseNamespace), Name: of.Name}
}

// Manager serves one driver for as long as the registry lists it. It owns what is known about the driver:
// one value under one mutex, with one channel that is closed at every change. Loops wait for a change, and
// then read the whole value again.
type Manager struct {
	reconcile.Memory
	options  *Options
	name     string // of the driver
	metrics  *status.DriverMetrics
	logger   klog.Logger // names the driver
	redactor *attach.Redactor

	connectionLog, capabilityLog loglimit.Problem // of stayConnected: that the driver cannot be called, and that it may be another one

	mu       sync.Mutex
	failures []status.Failure           // of operations, the latest first; guarded by mu
	state    state                      // guarded by mu
	changed  chan struct{}              // closed at the next change of state; guarded by mu
	endings  map[context.Context]func() // of while: ends the context if its condition does not hold any more; guarded by mu
}

// New returns the Manager of a driver. It does nothing before Serve.
func New(o *Options, logger klog.Logger, spec registry.Driver, m reconcile.Memory) *Manager {
	d := &Manager{
		Memory:   m,
		options:  o,
		name:     spec.Name,
		metrics:  o.Metrics.Driver(spec.Name),
		logger:   logger,
		redactor: &attach.Redactor{Publications: m.Table.Secrets},
		changed:  make(chan struct{}),
		endings:  map[context.Context]func(){},
	}
	d.update(func(s *state) {
		s.spec, s.connection, s.connectionReason, s.upSince = spec, status.StateConnecting, "not tried yet", time.Now()
	})
	return d
}

const (
	// A driver whose work panicked is served again after a delay that doubles with each panic.
	restartInitial = time.Second
	restartMax     = time.Minute
)

// Serve serves the driver until ctx ends and its work has drained. After a panic it starts again.
func (m *Manager) Serve(ctx context.Context) {
	for delay := restartInitial; ctx.Err() == nil; delay = min(2*delay, restartMax) {
		began := time.Now()
		var err error
		panics.Contain(func(panicked error) { err = panicked }, func() { err = m.run(ctx) })
		if err == nil {
			return
		}
		if time.Since(began) > restartMax {
			delay = restartInitial
		}
		panics.Contain(m.Panicked, func() {
			m.logger.Error(err, "Serving driver failed, restarting it", "retryIn", delay)
			m.update(func(s *state) {
				s.connection, s.connectionReason = status.StateConnecting, "starting again after an error in the hub"
			})
		})
		sleep(ctx, delay)
	}
}

// Panicked logs a panic outside of a run of the Manager.
func (m *Manager) Panicked(err error) { m.logger.Error(err, "Failed to end the work for a driver") }

// Spec returns how the driver is served.
func (m *Manager) Spec() registry.Driver { return m.get().spec }

// get returns the present state.
func (m *Manager) get() state {
	s, _ := m.watch()
	return s
}

// watch returns the present state, and a channel that is closed at its next change.
func (m *Manager) watch() (state, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, m.changed
}

// keptFailures is the number of a driver's latest failures that the status shows.
const keptFailures = 10

// countFailure counts a try that failed, for the status and in the metrics. took is the time since the operation was first asked for.
func (m *Manager) countFailure(err error, f status.Failure, took time.Duration) {
	m.metrics.Operation(f.Operation, status.ResultOf(err), took)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = slices.Insert(m.failures[:min(len(m.failures), keptFailures-1)], 0, f)
}

// latestFailures returns the latest failures, the latest first.
func (m *Manager) latestFailures() []status.Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.failures)
}

// mayName returns an error for a Secret that volumes of the driver may not name.
func (m *Manager) mayName(ref corev1.SecretReference) error {
	return m.get().spec.CheckSecret(ref.Namespace, ref.Name)
}

// readSecret reads a Secret that a volume of the driver names.
func (m *Manager) readSecret(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error) {
	return attach.ReadSecret(ctx, m.options.Kube.CoreV1(), m.mayName, ref)
}

// Decider returns the inputs of decisions that all objects of the driver share. The capabilities are those of
// the latest session, which may have ended.
func (m *Manager) Decider() attach.Driver {
	s := m.get()
	d := attach.Driver{Name: m.name, DefaultFSType: s.spec.DefaultFSType, NoAttach: !cache.AttachRequired(m.options.Cluster.CSIDriver(m.name))}
	if s.session != nil {
		d.Capabilities = s.session.info.Capabilities
	}
	return d
}

// update has edit change the state, wakes the loops that wait for a change, and reports whether there was one that
// anybody acts on. edit must not block.
func (m *Manager) update(edit func(*state)) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.state
	edit(&m.state)
	if m.state.State, m.state.Reason = m.state.decide(); m.state.State != before.State {
		m.state.Since = time.Now()
	}
	// Nobody acts on a change of Source and WindDown. A line that is added to the file changes the Source of
	// all drivers below it.
	before.spec.Source, before.spec.WindDown = m.state.spec.Source, m.state.spec.WindDown
	if before == m.state {
		return false
	}
	close(m.changed)
	m.changed = make(chan struct{})
	for ctx, endIfDue := range m.endings {
		if endIfDue(); ctx.Err() != nil { // due, or not needed any more
			delete(m.endings, ctx)
		}
	}
	return true
}

// SetSpec replaces the spec of the driver, and reports whether anything but its Source and WindDown has
// changed.
func (m *Manager) SetSpec(to registry.Driver) (changed bool) {
	var from registry.Driver
	changed = m.update(func(s *state) { from, s.spec = s.spec, to })
	if from.Secrets != to.Secrets || from.Listed != to.Listed {
		m.Queue.RetryAfter(diagnosis.SecretNotAllowed)
	}
	return changed
}

// setUp notes whether the driver can be called, together with the changes of edit. When it returns, the
// leader or the Observer has acted on it.
func (m *Manager) setUp(up bool, edit func(*state)) {
	turned := false
	m.update(func(s *state) {
		if turned = up != s.up; turned {
			s.leaseOffered = s.leaseOffered && !(s.up && time.Since(s.upSince) >= m.options.LeaseDuration)
			s.up, s.upSince = up, time.Now()
		}
		edit(s)
	})
	switch s := m.get(); {
	case turned && s.leader != nil:
		s.leader.connectionChanged()
	case turned && s.observer != nil:
		s.observer.LookAtAll() // the capabilities may have changed
	}
}

// never is longer than any process lives.
const never = time.Duration(math.MaxInt64)

// await calls look at once, at each change of the state, and after the time that look returned last. It
// blocks until look returns done, or ctx ends.
func (m *Manager) await(ctx context.Context, look func(state) (again time.Duration, done bool)) {
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
func (m *Manager) while(ctx context.Context, holds func(state) bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endings[ctx] = func() {
		if !holds(m.state) {
			cancel()
		}
	}
	m.endings[ctx]()
	return ctx, cancel
}

// sleep blocks for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// Look returns what the manager knows, for the status.
func (m *Manager) Look() view.Driver {
	s := m.get()
	d := view.Driver{
		Driver: status.Driver{Name: m.name, State: s.State, Reason: s.Reason, Since: s.Since, Up: s.up,
			Failures: m.latestFailures(), ConnectionError: s.connectionError, ForeignWriter: s.foreignWriter},
		Spec: s.spec, Known: s.session != nil, Decider: m.Decider(), Leads: s.leader != nil,
		Table: m.Table, Overlay: m.Overlay, ReadSecret: m.readSecret,
	}
	if !s.up {
		d.DownSince = s.upSince
	}
	if s.session != nil {
		d.Version, d.Capabilities = s.session.Info().Version, d.Decider.Capabilities.Names()
	}
	if s.leader != nil {
		d.UnansweredSince, d.Reported = s.session.UnansweredSince(m.Queue.Has), s.leader.work.Drift.Reported()
		d.IsWedged = m.Queue.IsWedged(time.Now())
	}
	if s.observer != nil {
		d.Observed = s.observer.Report()
	}
	return d
}
