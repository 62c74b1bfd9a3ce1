package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// source returns the source of the configuration, and a function that makes it read the
// configuration again. It only reads the file.
func (s hubSettings) source() (source registry.ConfigSource, reload func(), err error) {
	if s.csiAddress != "" {
		single, err := registry.NewSingle(registry.SingleOptions{
			Endpoint: s.csiAddress, Settings: s.driver, Ask: driverName, Source: "--csi-address " + s.csiAddress.Address(),
		})
		return single, func() {}, err
	}
	file, err := registry.NewFile(registry.FileOptions{Path: s.config, Defaults: s.driver})
	if _, missing := os.Stat(s.config); errors.Is(missing, fs.ErrNotExist) && s.config == defaultConfig {
		return nil, nil, fmt.Errorf("%w, name another file with --config, or set --csi-address to replace the csi-attacher of one driver", err)
	}
	if err != nil {
		return nil, nil, err
	}
	return file, file.Reload, nil
}

// newRegistry returns the registry of the drivers to serve.
func newRegistry(source registry.ConfigSource, kube *kubeClient) (*registry.Registry, error) {
	return registry.New(registry.Options{
		File:       source,
		CSIDrivers: func() registry.Source { return registry.NewCSIDriverSource(kube.StorageV1()) },
		Sockets: func(glob string) (registry.Source, error) {
			return registry.NewSocketSource(registry.SocketOptions{Glob: glob, Ask: driverName})
		},
	})
}

// driverName asks the driver at an endpoint for its name, over a connection of its own.
func driverName(ctx context.Context, endpoint registry.Endpoint) (string, error) {
	// gRPC must not parse the address: a path may have characters that are special in URLs.
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, endpoint.Network(), endpoint.Address())
	}
	conn, err := grpc.NewClient("passthrough:///driver", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithDisableServiceConfig())
	if err != nil {
		return "", fmt.Errorf("dial %s: %w", endpoint, err)
	}
	defer conn.Close()
	name, err := rpc.GetDriverName(ctx, conn)
	return name, withoutAnswer(err)
}

// withoutAnswer returns the error of a call without the text that a driver may have written: nobody knows here which
// secrets it may repeat. Errors of the connection and the deadline, which gRPC writes, keep their text.
func withoutAnswer(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	if s.Code() == codes.Unavailable || s.Code() == codes.DeadlineExceeded {
		return status.Error(s.Code(), csiclient.Truncate(csiclient.Sanitize(s.Message()), csiclient.MaxText))
	}
	return fmt.Errorf("the driver answered GetPluginInfo with %s", s.Code())
}
