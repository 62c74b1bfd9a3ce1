// Package driver serves one driver, in isolation from the others. A Manager follows its settings, keeps its connection
// (live_session.go), takes a role (role.go: lead, observe, wait, pause) and runs the work of a term (lifecycle.go).
package driver

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Manager serves one driver for as long as the registry lists it. It owns what is known about the driver:
// one value under one mutex, with one channel that is closed at every change. Loops wait for a change, and
// then read the whole value again.
type Manager struct {
	reconcile.Options // of the Workers of all terms
	options           *Options

	stateLog *loglimit.Limiter

	mu           sync.Mutex
	logged       loggedState                // guarded by mu, so that the last line has the present state
	loggedReason loglimit.Problem           // guarded by mu
	failures     []status.Failure           // of operations, the latest first; it is replaced, not changed; guarded by mu
	state        state                      // guarded by mu
	changed      chan struct{}              // closed at the next change of state; guarded by mu
	endings      map[context.Context]func() // of while: ends the context if its condition does not hold any more; guarded by mu
}

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
	Probes *probes.Probes
	// Connect connects to a driver; nil means csiclient.Connect.
	Connect func(context.Context, registry.Driver) (Session, error)
	// Rights reads the rights of this process; nil: the checklist does not have them.
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

// New returns the Manager of a driver. It does nothing before Serve.
func New(o *Options, logger klog.Logger, spec registry.Driver, memory reconcile.Memory) *Manager {
	m := &Manager{options: o, stateLog: loglimit.New(10, time.Minute), changed: make(chan struct{}), endings: map[context.Context]func(){},
		state: state{spec: spec, connection: status.StateConnecting, connectionReason: notTriedYet, upSince: time.Now()}}
	m.Options = reconcile.Options{
		Memory:     memory,
		Driver:     spec.Name,
		Cluster:    o.Cluster,
		Kube:       o.Kube,
		Events:     o.Events,
		Metrics:    o.Metrics.Driver(spec.Name),
		Logger:     logger,
		WriteLimit: o.LeaseDuration / 3,
		Redactor:   &attach.Redactor{Publications: memory.Table.Secrets},
		Settings:   func() registry.Settings { return m.get().spec.Settings },
		Decider:    m.decider,
		Session:    func() reconcile.Session { return m.get().session },
		Away:       m.away,
		ReadSecret: m.readSecret,
		Failed:     m.countFailure,
		Conflict:   func(w status.ForeignWriter) { m.update(func(s *state) { s.foreignWriter = w }) },
	}
	m.update(func(*state) {}) // computes the State
	return m
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
		err := m.run(ctx)
		if err == nil {
			return
		}
		if time.Since(began) > restartMax {
			delay = restartInitial
		}
		m.Logger.Error(err, "Serving driver failed, restarting it", "retryIn", delay)
		m.update(func(s *state) {
			s.connection, s.connectionReason = status.StateConnecting, "starting again after an error in the hub"
		})
		reconcile.Sleep(ctx, delay)
	}
}

// Panicked logs a panic outside of a run of the Manager.
func (m *Manager) Panicked(err error) { m.Logger.Error(err, "Failed to end the work for a driver") }

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

// countFailure counts a try that failed, for the status and in the metrics. took is the time since the operation was first required.
func (m *Manager) countFailure(err error, f status.Failure, took time.Duration) {
	m.Metrics.Operation(f.Operation, status.ResultOf(err), took)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = append([]status.Failure{f}, m.failures[:min(len(m.failures), keptFailures-1)]...)
}

// away returns why the driver cannot be called, nil if it can.
func (m *Manager) away() error {
	if s := m.get(); !s.up {
		return fmt.Errorf("%w: %s", reconcile.ErrDisconnected, s.connectionReason)
	}
	return nil
}

// readSecret reads a Secret that a volume of the driver names, unless its volumes may not name it: anyone who may write a
// PersistentVolume could send the Secret of another driver to this one. No other code reads Secrets for a driver.
func (m *Manager) readSecret(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error) {
	if err := m.get().spec.CheckSecret(ref.Namespace, ref.Name); err != nil {
		return nil, err
	}
	return m.Kube.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
}

// decider returns the inputs of decisions that all objects of the driver share. The capabilities are those of
// the latest session, which may have ended.
func (m *Manager) decider() attach.Driver {
	s := m.get()
	d := attach.Driver{Name: m.Driver, DefaultFSType: s.spec.DefaultFSType, NoAttach: !cache.AttachRequired(m.Cluster.CSIDriver(m.Driver))}
	if s.session != nil {
		d.Capabilities = s.session.Info().Capabilities
	}
	return d
}

// update has edit change the state, wakes the loops that wait for a change, and reports whether there was one that
// anybody acts on. It logs a change of the State. edit must not block.
func (m *Manager) update(edit func(*state)) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.state
	edit(&m.state)
	if m.state.State, m.state.Reason = m.state.decide(); m.state.State != before.State {
		m.state.Since = time.Now()
	}
	m.logState(before, m.state)
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
		if up {
			s.connection, s.connectionReason = status.StateReady, ""
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
	for ctx.Err() == nil {
		s, changed := m.watch()
		again, done := look(s)
		if done {
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(again):
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

// Look returns what the manager knows, for the status.
func (m *Manager) Look() view.Driver {
	m.mu.Lock()
	s, failures := m.state, m.failures
	m.mu.Unlock()
	d := view.Driver{
		Driver: status.Driver{Name: m.Driver, State: s.State, Reason: s.Reason, Since: s.Since, Up: s.up,
			Failures: failures, ConnectionError: s.connectionError, ForeignWriter: s.foreignWriter},
		Spec: s.spec, Known: s.session != nil, Decider: m.decider(), Leads: s.leader != nil,
		Table: m.Table, Overlay: m.Overlay, ReadSecret: m.ReadSecret,
	}
	if !s.up {
		d.DownSince = s.upSince
	}
	if s.session != nil {
		d.Version, d.Capabilities, d.UnansweredSince = s.session.Info().Version, d.Decider.Capabilities.Names(), s.session.UnansweredSince(m.Queue.Has)
	}
	if s.leader != nil {
		d.Reported = s.leader.work.Drift.Reported()
	}
	if s.observer != nil {
		d.Observed = s.observer.Report()
	}
	return d
}
