package hub

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Drivers implements status.Source: it returns every driver that is served or drains.
func (h *Hub) Drivers() []status.Driver {
	h.mu.Lock()
	managers := maps.Clone(h.managers)
	h.mu.Unlock()
	drivers := make([]status.Driver, 0, len(managers))
	now, replicas := time.Now(), h.replicas()
	for _, m := range managers {
		drivers = append(drivers, m.view(replicas, now))
	}
	return drivers
}

// replicas returns the identities of the live replicas of the hub.
func (h *Hub) replicas() map[string]bool {
	live := map[string]bool{}
	if h.options.Leases != nil {
		for _, m := range h.options.Leases.Members() {
			live[m.Identity] = true
		}
	}
	return live
}

// view returns the driver for the status. replicas has the live replicas of the hub.
func (m *manager) view(replicas map[string]bool, now time.Time) status.Driver {
	s := m.get()
	v := status.Driver{
		Name:     m.name,
		State:    string(s.State),
		Reason:   s.Reason,
		Since:    s.Since,
		Up:       s.up,
		Mode:     string(s.spec.Mode),
		Source:   s.spec.Source,
		Endpoint: string(s.spec.Endpoint),
		Workers:  s.spec.Workers,
		Settings: status.Settings{Timeout: metav1.Duration{Duration: s.spec.Timeout}, MaxPerNode: s.spec.MaxPerNode, StuckAfter: metav1.Duration{Duration: s.spec.StuckAfter}},
		Lease:    m.hub.leaseView(s),
		Failures: m.latestFailures(),

		ConnectionError: s.connectionError,
		ForeignWriter:   s.foreignWriter,
	}
	if s.session != nil {
		v.Version, v.Capabilities = s.session.Info().Version, s.session.Info().Capabilities.Names()
	}
	v.RecordedCalls = m.recordedCalls(s)
	decider := m.decider()
	v.NoAttach = decider.NoAttach && decider.Capabilities.PublishUnpublish
	if !s.up {
		v.DownSince = s.downSince
	}
	if s.leader != nil || s.role.mode == registry.ModeActive && v.Lease.Holder == "" { // also after the lease was given up
		v.Unowned, v.UnownedCount = m.unowned(s.leader)
	}
	if s.observer != nil {
		v.Observed = s.observer.Report()
		v.Checklist = m.checklist(v, replicas)
	}
	if s.leader != nil {
		v.FullNodes, v.WaitingForCapacity = m.fullNodes()
	}
	m.fillLanes(&v, s, !v.Lease.Mine && replicas[v.Lease.Holder], now)
	return v
}

// leaseView returns the lease of a driver and its holder.
func (h *Hub) leaseView(s driverState) status.Lease {
	v := status.Lease{Mine: s.leader != nil}
	if h.options.Leases == nil {
		return v
	}
	name := h.leaseOf(s.spec)
	v.Name, v.Namespace = name.Name, name.Namespace
	switch holder, ok := h.options.Leases.Holder(name); {
	case !ok:
	case holder.Expired:
		v.LastHolder, v.Renewed = holder.Identity, holder.Renewed
	default:
		v.Holder, v.Since, v.Renews = holder.Identity, holder.Since, holder.Renews
	}
	return v
}
