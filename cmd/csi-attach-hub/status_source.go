package main

import (
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// leaderGrace is the time after the expiry of a lease until /healthz/leader-election fails.
// csi-attacher has the same value.
const leaderGrace = 20 * time.Second

// statusSource is the status.Source of this process.
type statusSource struct {
	*hub.Hub
	source   registry.ConfigSource
	registry *registry.Registry
	leases   *lease.Leases // nil without leader election
	started  time.Time
}

// Overview implements status.Source.
func (s statusSource) Overview() status.Overview {
	o := status.Overview{Version: version, Started: s.started, Config: s.config()}
	o.Unserved, o.UnservedSince = s.Unserved()
	if s.leases != nil {
		for _, m := range s.leases.Members() {
			o.Replicas = append(o.Replicas, m.Identity)
			if m.Self {
				o.Identity = m.Identity
			}
		}
	}
	return o
}

// config returns the state of the configuration and its conflicts.
func (s statusSource) config() status.Config {
	var c status.Config
	if file, ok := s.source.(*registry.File); ok {
		is := file.Status()
		c.Hash, c.LastSuccess = is.Hash, is.LastSuccess
		for _, f := range is.Files {
			c.Files = append(c.Files, status.ConfigFile{Path: f.Path, Rejected: f.Rejected})
		}
		for _, e := range is.Errors {
			c.Errors = append(c.Errors, e.Error())
		}
	}
	for _, w := range s.source.Config().Warnings() {
		c.Warnings = append(c.Warnings, w.String())
	}
	for _, conflict := range s.registry.Conflicts() {
		c.Conflicts = append(c.Conflicts, status.Conflict(conflict))
	}
	return c
}

// leaderCheck returns why /healthz/leader-election fails, nil if it does not.
func (s statusSource) leaderCheck() error {
	if s.leases == nil {
		return nil
	}
	return s.leases.Check(leaderGrace)
}
