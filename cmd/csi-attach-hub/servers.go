package main

import (
	"context"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// newServers returns an HTTP server for each address, with the given options. Each is
// listening already, so that an address in use ends the program at its start.
func newServers(ctx context.Context, settings httpSettings, options status.Options) ([]*status.Server, error) {
	options.MetricsPath, options.Profiling, options.AllowedHosts = settings.MetricsPath, settings.Profiling, settings.AllowedHosts
	var servers []*status.Server
	for _, address := range settings.Addresses {
		options.Endpoint = address
		server, err := status.New(options)
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
