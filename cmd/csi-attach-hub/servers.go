package main

import (
	"context"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/access"
)

// newServers returns an HTTP server for each address, with the given options. Each is
// listening already, so that an address in use ends the program at its start.
func newServers(ctx context.Context, settings httpSettings, kube *kubeClient, options status.Options) ([]*status.Server, error) {
	options.MetricsPath, options.Profiling, options.AllowedHosts = settings.MetricsPath, settings.Profiling, settings.AllowedHosts
	var servers []*status.Server
	for _, address := range settings.Addresses {
		o := options
		o.Endpoint = address
		if !status.IsLoopback(address) {
			if err := settings.secure(&o, kube); err != nil {
				return nil, err
			}
		}
		server, err := status.New(o)
		if err != nil {
			return nil, err
		}
		if err := server.Listen(ctx); err != nil {
			return nil, err
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// secure adds TLS and authorization to a server that other machines can reach.
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
