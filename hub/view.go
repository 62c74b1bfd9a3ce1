package hub

import (
	"maps"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// Drivers returns every driver that is engaged, as part of a status.Source.
func (h *Hub) Drivers() []status.Driver {
	h.mu.Lock()
	engaged := maps.Clone(h.engaged)
	h.mu.Unlock()
	drivers := make([]status.Driver, 0, len(engaged))
	now := time.Now()
	for name, e := range engaged {
		drivers = append(drivers, h.view(name, e, now))
	}
	return drivers
}

// Conditions returns the state of every driver that is served or drains, by name.
func (h *Hub) Conditions() map[string]Condition {
	h.mu.Lock()
	engaged := maps.Clone(h.engaged)
	h.mu.Unlock()
	conditions := make(map[string]Condition, len(engaged))
	for name, e := range engaged {
		conditions[name] = e.condition.get()
	}
	return conditions
}

// view returns what is to be seen of one driver.
func (h *Hub) view(name string, e *engagement, now time.Time) status.Driver {
	value, _ := e.desired.get()
	c := e.condition.get()
	v := status.Driver{
		Name:     name,
		State:    string(c.State),
		Reason:   c.Reason,
		Since:    c.Since,
		Mode:     string(value.Mode),
		Source:   value.Source,
		Endpoint: string(value.Endpoint),
		Workers:  value.Workers,
		Settings: status.SettingsOf(value.Settings),
		Failures: e.tally.latest(),
	}
	if c.LastError != "" {
		v.ConnectionError = status.Failure{Time: c.ErrorTime, Text: c.LastError}
	}
	if w, va := e.intruder.get(); va != "" {
		v.ForeignWriter = status.ForeignWriter{Manager: w.Manager, Time: w.Time, VolumeAttachment: va}
	}
	var views [volume.LaneCount]volume.LaneView
	if p := e.post.Load(); p != nil {
		v.Up, _, _ = p.connection.isUp()
		if s := p.connection.session.Load(); s != nil {
			v.Version, v.Capabilities = s.Info().Version, capabilities(s.Info().Capabilities)
		}
		d := p.current.Load()
		if d != nil {
			views = d.table.Lanes(now)
			v.Unowned, v.UnownedCount = d.unowned()
		}
		v.Lease = h.leaseView(p, d != nil)
		if o := p.observer.Load(); o != nil {
			v.Observed, v.Checklist = o.Report(v)
		}
	}
	for l, view := range views {
		shown := status.Lane{Operation: status.Operation(volume.Lane(l).String()), Queued: view.Queued, Delayed: view.Delayed,
			Running: view.Running, Workers: view.Workers, OldestSeconds: view.Oldest.Seconds()}
		e.tally.fill(&shown)
		v.Lanes = append(v.Lanes, shown)
		if volume.Lane(l) != volume.FinalizerLane {
			v.Busy += view.Running
		}
	}
	return v
}

// leaseView says who has the lease of a driver.
func (h *Hub) leaseView(p *post, mine bool) status.Lease {
	if h.options.Leases == nil {
		return status.Lease{Mine: mine}
	}
	value, _ := p.desired.get()
	name := h.leaseOf(value)
	v := status.Lease{Name: name.Name, Namespace: name.Namespace, Mine: mine}
	if holder, ok := h.options.Leases.Holder(name); ok {
		v.Holder, v.Since = holder.Identity, holder.Since
	}
	return v
}

func capabilities(c csiclient.Capabilities) []string {
	var names []string
	for _, known := range []struct {
		has  bool
		name string
	}{
		{c.PublishUnpublish, "PUBLISH_UNPUBLISH_VOLUME"},
		{c.PublishReadonly, "PUBLISH_READONLY"},
		{c.SingleNodeMultiWriter, "SINGLE_NODE_MULTI_WRITER"},
		{c.ListPublishedNodes, "LIST_VOLUMES_PUBLISHED_NODES"},
	} {
		if known.has {
			names = append(names, known.name)
		}
	}
	return names
}
