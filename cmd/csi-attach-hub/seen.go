package main

import (
	"net"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/access"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// leaderGrace is how much longer than its duration a lease may be unrenewed before
// /healthz/leader-election says so: csi-attacher's.
const leaderGrace = 20 * time.Second

// seen is what is to be seen of this process: a status.Source.
type seen struct {
	*hub.Hub
	source   registry.ConfigSource
	registry *registry.Registry
	leases   *lease.Leases // nil without leader election
	started  time.Time
}

// Overview implements status.Source.
func (s seen) Overview() status.Overview {
	o := status.Overview{Version: version, Started: s.started, Config: s.config(), Unclaimed: s.Unclaimed(), Replicas: s.replicas()}
	for _, r := range o.Replicas {
		if r.Self {
			o.Identity = r.Identity
		}
	}
	return o
}

// config says what became of what drivers are learned from.
func (s seen) config() status.Config {
	c := status.Config{LastReloadOK: true}
	if file, ok := s.source.(*registry.File); ok {
		is := file.Status()
		c.Path, c.Hash, c.LastReloadOK, c.LastSuccess = file.Name(), is.Hash, is.LastSuccessful, is.LastSuccess
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

// replicas says which processes share the drivers, with the drivers whose leases this
// one saw them hold.
func (s seen) replicas() []status.Replica {
	held := map[string][]string{}
	for _, d := range s.Drivers() {
		if d.Lease.Holder != "" {
			held[d.Lease.Holder] = append(held[d.Lease.Holder], d.Name)
		}
	}
	var replicas []status.Replica
	if s.leases != nil {
		for _, m := range s.leases.Members() {
			replicas = append(replicas, status.Replica{Identity: m.Identity, Self: m.Self, Drivers: held[m.Identity]})
		}
	}
	return replicas
}

// leaderCheck is what /healthz/leader-election answers.
func (s seen) leaderCheck() error {
	if s.leases == nil {
		return nil
	}
	return s.leases.Check(leaderGrace)
}

// servers returns what shows this process over HTTP, each already listening: an address
// that cannot be had ends the program before it has begun.
func (s seen) servers(listen func(*status.Server) error, kube *kubeClient, settings httpSettings, metrics *status.Metrics, health *status.Health) ([]*status.Server, error) {
	var servers []*status.Server
	for _, address := range settings.Addresses {
		options := status.Options{Endpoint: address, MetricsPath: settings.MetricsPath, Source: s,
			Metrics: metrics, Health: health, LeaderCheck: s.leaderCheck, Profiling: settings.Profiling}
		if !isLoopback(address) {
			if err := settings.secure(&options, kube); err != nil {
				return nil, err
			}
		}
		server, err := status.New(options)
		if err != nil {
			return nil, err
		}
		if err := listen(server); err != nil {
			return nil, err
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// secure adds TLS and the guard to what is served to others.
func (s httpSettings) secure(o *status.Options, kube *kubeClient) error {
	o.TLS = status.TLS{CertFile: s.TLSCert, KeyFile: s.TLSKey, SelfSigned: s.Authorized && s.TLSCert == ""}
	if !s.Authorized {
		return nil
	}
	guard, err := access.New(kube.AuthenticationV1(), kube.AuthorizationV1())
	if err != nil {
		return err
	}
	o.Guard = guard.Wrap
	return nil
}

// isLoopback says whether only this machine, in a Pod only that Pod and those who may
// forward its ports, can reach an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
