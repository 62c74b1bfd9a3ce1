package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/access"
)

const (
	// Limits of the TokenReviews, and of the SubjectAccessReviews, in requests. access.Guard sends fewer unless many
	// users look, or requests are repeated after errors.
	reviewsPerSecond, reviewsBurst = 50, 100
)

// newServers returns an HTTP server for each address, with the given options. Each is
// listening already, so that an address in use ends the program at its start.
func newServers(ctx context.Context, settings httpSettings, config *rest.Config, options status.Options) ([]*status.Server, error) {
	options.MetricsPath, options.Profiling, options.AllowedHosts = settings.MetricsPath, settings.Profiling, settings.AllowedHosts
	public, err := settings.secured(options, config)
	if err != nil {
		return nil, err
	}
	var servers []*status.Server
	for _, address := range settings.Addresses {
		o := public
		if status.IsLoopback(address) {
			o = options
		}
		o.Endpoint = address
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

// secured returns the options with TLS and authorization, for servers that other machines can reach. These share one
// access.Guard. It has a connection of its own: who looks must not delay what is written for the volumes.
func (s httpSettings) secured(o status.Options, config *rest.Config) (status.Options, error) {
	o.TLS = status.TLS{CertFile: s.TLSCert, KeyFile: s.TLSKey, SelfSigned: s.Authorized && s.TLSCert == ""}
	if !s.Authorized {
		return o, nil
	}
	config = withOwnConnection(config, "reviews")
	config.QPS, config.Burst = reviewsPerSecond, reviewsBurst
	kube, err := newKubeClient(config)
	if err != nil {
		return o, fmt.Errorf("for reviews: %w", err)
	}
	o.Guard = access.New(kube.AuthenticationV1(), kube.AuthorizationV1()).Wrap
	return o, nil
}
