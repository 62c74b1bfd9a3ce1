package hub

import (
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
)

// look returns what the manager knows, for the status.
func (m *manager) look() view.Driver {
	s := m.get()
	d := view.Driver{
		Driver: status.Driver{Name: m.name, State: string(s.State), Reason: s.Reason, Since: s.Since, Up: s.up,
			Failures: m.latestFailures(), ConnectionError: s.connectionError, ForeignWriter: s.foreignWriter},
		Spec: s.spec, Known: s.session != nil, Decider: m.decider(), Leads: s.leader != nil,
		Table: m.table, Overlay: m.overlay, ReadSecret: m.readSecret,
	}
	if !s.up {
		d.DownSince = s.upSince
	}
	if s.session != nil {
		d.Version, d.Capabilities = s.session.Info().Version, d.Decider.Capabilities.Names()
	}
	if s.leader != nil {
		d.UnansweredSince, d.Reported = s.session.unansweredSince(m.queue.Has), s.leader.work.Drift.Reported()
	}
	if s.observer != nil {
		d.Observed = s.observer.Report()
	}
	return d
}

// served returns the managers' look functions, by driver.
func (h *Hub) served() map[string]func() view.Driver {
	h.mu.Lock()
	defer h.mu.Unlock()
	looks := make(map[string]func() view.Driver, len(h.managers))
	for name, m := range h.managers {
		looks[name] = m.look
	}
	return looks
}
